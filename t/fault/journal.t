# The registry is away when a response comes: the client gets the true response all the same, and the settlement waits
# in the journal until the registry is back. A second server, which knows nothing of the journal, meets the retries.
use strict;
use warnings;
use File::Copy ();
use Idem::Test;
use JSON::PP ();

my $dir;
my $t = Idem::Test->new(config => sub {
    my ($t) = @_;
    $dir = $t->root . '/journal';
    mkdir $dir;
    chmod 0700, $dir;
    give($dir);
    return "IdempotencyJournal \"$dir\"\nIdempotencyStoreTimeout 500ms\n" . protected('/charges', 'charges')
        . protected('/again', 'again', 'IdempotencyEffect repeatable') . protected('/rules', 'rules', 'IdempotencyOutcome 409 rejected')
        . protected({ who => "IdempotencyTenant const:gone\n    IdempotencyPrincipal user" }, '/gone', 'gone');
});
my $twin = $t->twin(mpm => 'prefork', config => $t->httpd->{config} =~ s/^IdempotencyJournal.*//mr);
my ($c, $other) = map { $_->client->with(authority => 'shop.example') } $t, $twin;
my $body = '{"amount":10}';
my $log = $t->httpd;

sub entries { my @names = sort grep { /\.settlement\z/ } map { s{.*/}{}r } glob "$dir/*"; return @names }
sub row { my ($key) = @_; return ($t->records("idem_key = '$key'"))[0] // {} }
sub set_aside { my @names = sort map { s{.*/}{}r } glob "$dir/aside/*.settlement"; return @names }
sub reason { my ($name) = @_; return slurp("$dir/aside/$name.reason") }

# Requests that run while the registry is taken away, and come to their end without it: their responses.
sub without_registry {
    my ($take, @keys) = @_;
    my %arg = ref $keys[-1] ? %{ pop @keys } : ();
    my $before = () = $t->backend->effects;
    $t->backend->behave(hold => 1, %{ $arg{behave} || {} });
    my @running = map { $c->send(POST => $arg{place} // '/charges', key => $_, body => $body) } @keys;
    ok(wait_for(sub { (() = $t->backend->effects) == $before + @keys }), 'they run') or diag(scalar(() = $t->backend->effects));
    $take->();
    $t->backend->release;
    my @res = map { $_->response } @running;
    $t->backend->behave;
    return @res;
}
# The database is there again, and every child has found it.
sub back { $t->pg->start; return $t->found_again($c, POST => '/charges', body => $body) }
sub stopped { $t->pg->stop('immediate') }

# Takes the journal's files away, out of the children's reach, and gives them back.
sub hide { mkdir "$dir.hidden"; my @names = entries(); rename "$dir/$_", "$dir.hidden/$_" for @names; return @names }
sub unhide { rename "$dir.hidden/$_", "$dir/$_" for @_ }

# The operation has run for ever, whoever runs it.
sub lapse { my ($key) = @_; $t->pg->do("UPDATE idempotency_records SET owned_at = owned_at - interval '1 day' WHERE idem_key = '$key'") }

my $kept;
subtest 'the database is stopped between effect and settlement' => sub {
    my $key = fresh_key();
    my ($first) = without_registry(\&stopped, $key, { behave => { body => '{"paid":true}' } });
    is($first->status, 200, 'the client gets the true answer');
    is($first->body, '{"paid":true}', 'whole');
    my @names = entries();
    is(scalar @names, 1, 'its settlement is one file');
    unlike($names[0], qr/\Q$key\E/, 'whose name has no key');
    is((stat "$dir/$names[0]")[2] & 07777, 0600, 'for nobody else to read');
    $kept = slurp("$dir/$names[0]");
    ok(index($kept, $key) < 0, 'the key is not in it');
    my ($status, $said) = $t->ctl('--json', 'journal', 'list', $dir);
    is($status, 0, 'the tool lists it');
    my $entry = eval { JSON::PP->new->decode($said) } // {};
    is_deeply([ @$entry{qw(operation generation outcome response_code fault)} ], [ $first->operation, 1, 'succeeded', 200, undef ], 'with what it holds') or diag($said);
    problem($c->post('/charges', key => $key, body => $body), 'store-unavailable');
    ok(back() && wait_for(sub { !entries() }, 20), 'it is applied when the database is back');
    is(row($key)->{status}, 'SUCCEEDED', 'the record is final');
    ran($t, 0, 'the retry', sub { is_replay($c->post('/charges', key => $key, body => $body), $first, 'the retry') });
    is_deeply([ set_aside() ], [], 'nothing is put aside');
    $log->expect_log(qr/IDEM0806/);
};

subtest 'the database hangs between effect and settlement' => sub {
    my $key = fresh_key();
    my ($first) = without_registry(sub { $t->pg->sigstop }, $key);
    is($first->status, 200, 'the client gets the true answer');
    is(scalar(my @names = entries()), 1, 'its settlement is in the journal');
    $t->pg->cont;
    ok(wait_for(sub { !entries() }, 20), 'it is applied, or found to be, when the database goes on');
    is_replay($c->post('/charges', key => $key, body => $body), $first, 'the retry');
    is_deeply([ set_aside() ], [], 'nothing is put aside');
};

subtest 'nothing was executed' => sub {
    my $key = fresh_key();
    my ($first) = without_registry(\&stopped, $key, { place => '/rules', behave => { status => 409 } });
    is($first->status, 409, 'the client gets the true answer');
    ok(back() && wait_for(sub { !entries() }, 20), 'the journal is applied');
    is_deeply(row($key), {}, 'the key is free');
    is_deeply([ set_aside() ], [], 'nothing is put aside');
};

subtest 'many settlements, two children and the tool' => sub {
    my @keys = map { fresh_key() } 1 .. 12;
    my @first = without_registry(\&stopped, @keys);
    is(scalar(my @names = entries()), 12, 'all are in the journal');
    # Not one of ours: an entry of another registry, and what is no entry.
    my ($other) = map { s/\A[0-9a-f]{16}/0123456789abcdef/r } @names;
    File::Copy::copy("$dir/$names[0]", "$dir/$other");
    spew("$dir/README", 'hello', 0644);
    $t->pg->start;
    my @tools = map { spawn(cmd => [ $t->{ctl}, 'journal', 'apply', $dir ], env => $t->pg->env, out => $t->root . "/tool$_", dir => $t->pg->socket_dir) } 1, 2;
    ok(wait_for(sub { entries() == 1 }, 20), 'they are applied');
    ok(wait_for(sub { !grep { alive($_) } @tools }), 'the tools have ended');
    is_deeply([ entries() ], [$other], 'what is of another registry is left alone');
    is_deeply([ set_aside() ], [], 'nobody was in the way of another');
    is($t->record_count("status = 'SUCCEEDED' AND idem_key IN (" . join(',', map { "'$_'" } @keys) . ')'), 12, 'every record is final');
    ok(back(), 'both children have found the database');
    my @again = $c->parallel(map { [ POST => '/charges', key => $_, body => $body ] } @keys);
    is_deeply([ map { $_->body } @again ], [ map { $_->body } @first ], 'every retry gets its own first answer');
    unlink "$dir/$other";
};

subtest 'the journal is later than a retry that has marked it UNKNOWN' => sub {
    my $key = fresh_key();
    my ($first) = without_registry(\&stopped, $key);
    my @names = hide();
    is(scalar @names, 1, 'the settlement is out of reach');
    ok(back(), 'the database is back');
    lapse($key);
    ok(wait_for(sub { $other->post('/charges', key => fresh_key(), body => $body)->status == 200 }, 20), 'for the other server, too');
    ran($t, 0, 'the retry', sub { problem($other->post('/charges', key => $key, body => $body), 'outcome-unknown') });
    $log->expect_log(qr/IDEM0401/);
    unhide(@names);
    ok(wait_for(sub { row($key)->{status} eq 'SUCCEEDED' }, 20), 'it is settled all the same');
    ran($t, 0, 'the retry', sub { is_replay($c->post('/charges', key => $key, body => $body), $first, 'the true answer') });
};

subtest 'the operation was taken over' => sub {
    my $key = fresh_key();
    my ($first) = without_registry(\&stopped, $key, { place => '/again' });
    my @names = hide();
    ok(back(), 'the database is back');
    lapse($key);
    my $second;
    ok(wait_for(sub { $other->post('/charges', key => fresh_key(), body => $body)->status == 200 }, 20), 'for the other server, too');
    ran($t, 1, 'the retry', sub { $second = $other->post('/again', key => $key, body => $body) });
    is($second->status, 200, 'runs again');
    unhide(@names);
    ok(wait_for(sub { set_aside() }, 20), 'the old settlement is put aside');
    like(reason($names[0]), qr/generation 1/, 'with the reason');
    is_replay($c->post('/again', key => $key, body => $body), $second, 'the newer answer stays');
    unlink glob "$dir/aside/*";
    $log->expect_log(qr/IDEM1603/);
};

subtest 'the key was reserved anew' => sub {
    my $key = fresh_key();
    my ($first) = without_registry(\&stopped, $key);
    my @names = hide();
    $t->pg->start;
    $t->pg->do("DELETE FROM idempotency_records WHERE idem_key = '$key'");
    $t->backend->behave(hold => 1);
    my $before = () = $t->backend->effects;
    my $running;
    ok(wait_for(sub { $running = $other->send(POST => '/charges', key => $key, body => $body); wait_for(sub { (() = $t->backend->effects) > $before }, 2) }, 20), 'a new operation runs');
    my $row = row($key);
    isnt($row->{operation_id}, $first->operation, 'it is another one');
    unhide(@names);
    ok(wait_for(sub { !entries() }, 20), 'the old settlement is dropped');
    is_deeply([ set_aside() ], [], 'and not kept: nobody can ask for it');
    $log->expect_log(qr/IDEM1607: .*operation \Q@{[ $first->operation ]}\E, generation 1 \(succeeded, 200\) is dropped: there is no record/);
    is_deeply(row($key), $row, 'the new one is as it was');
    $t->backend->release;
    my $second = $running->response;
    $t->backend->behave;
    is($second->operation, $row->{operation_id}, 'and comes to its own end');
    my $retry;
    wait_for(sub { ($retry = $c->post('/charges', key => $key, body => $body))->status != 503 }, 20);    # this server may find the registry later
    is_replay($retry, $second, 'which is replayed');
};

subtest 'a tenant is erased' => sub {
    my @keys = map { fresh_key() } 1 .. 3;
    my $other = fresh_key();
    without_registry(\&stopped, @keys, { place => '/gone', behave => { body => '{"whose":"gone"}' } });
    my @names = hide();
    ok(back(), 'the database is back');
    without_registry(\&stopped, $other);
    my ($others) = my @others = hide();
    ok(back(), 'the database is back');
    # a server that is stopped: an entry, one put aside, one of somebody else, and a broken file
    my $stopped = "$dir.stopped";
    for my $folder ($stopped, "$stopped/aside") { mkdir $folder, 0700; give($folder) }
    rename "$dir.hidden/$names[0]", "$stopped/$names[0]";
    rename "$dir.hidden/$names[1]", "$stopped/aside/$names[1]";
    rename "$dir.hidden/$others", "$stopped/$others";
    spew("$stopped/aside/$names[1].reason", "why\n", 0600);
    my $files = sub { join ' ', sort map { s{^\Q$stopped/}{}r } glob("$stopped/*.settlement $stopped/aside/*") };
    my $erase = sub { my ($status, $said) = $t->ctl('erase', '--json', '--tenant', 'gone', '--now', @_); return ($status, JSON::PP->new->decode(($said =~ /^(\{.*\})$/m)[0]), $said) };

    my $before = $files->();
    my ($status, $json) = $erase->('--journal', $stopped);
    is("$json->{left} $json->{journal}", '3 0', 'what is at work stays, and its settlements');
    is($files->(), $before, 'every file');
    $t->pg->do("UPDATE idempotency_records SET owner = NULL WHERE tenant_id = 'gone'");
    ($status, $json) = $erase->('--journal', $stopped);
    is("$status $json->{left} $json->{journal}", '0 0 2', 'then they go with their operations');
    is($files->(), $others, 'with what was put aside and its reason, and nobody else\'s');
    spew("$stopped/" . ($others =~ s/-.*//r) . '-x.settlement', 'half', 0600);
    my $said;
    ($status, $json, $said) = $erase->('--journal', $stopped);
    is("$status $json->{unreadable}", '1 1', 'what cannot be read is told');
    like($said, qr/may be of this tenant/, 'with a word');
    is(($erase->('--journal', "$dir.none"))[0], 1, 'a folder that is not there is told, too');

    unhide($names[2]);
    ok(wait_for(sub { !entries() }, 20), 'on a server that runs, an entry that comes later is gone');
    is_deeply([ set_aside() ], [], 'and not put aside with the tenant\'s response');
    is($t->record_count("tenant_id = 'gone'"), 0, 'nothing has changed');
    $log->expect_log(qr/IDEM1607/);
    unhide($others) if rename "$stopped/$others", "$dir.hidden/$others";
    ok(wait_for(sub { row($other)->{status} eq 'SUCCEEDED' }, 20), 'somebody else\'s is applied');
};

subtest 'broken files' => sub {
    my $key = fresh_key();
    my ($first) = without_registry(\&stopped, $key);
    my ($name) = entries();
    my $whole = slurp("$dir/$name");
    my $changed = $whole;
    substr($changed, length($whole) / 2, 1) = chr(ord(substr $whole, length($whole) / 2, 1) ^ 1);
    my %bad = (cut => substr($whole, 0, 100), changed => $changed, empty => '', text => "hello\n", later => substr($whole, 0, 7) . "\x02" . substr($whole, 8));
    (my $prefix = $name) =~ s/-.*//;
    # older than the good one, so that they are met first
    my %name = map { $_ => "$prefix-00000000000000-$_.settlement" } keys %bad;
    spew("$dir/$name{$_}", $bad{$_}, 0600) for keys %bad;
    ok(back() && wait_for(sub { !entries() }, 20), 'all are dealt with');
    is_replay($c->post('/charges', key => $key, body => $body), $first, 'the sound one is applied');
    is_deeply([ set_aside() ], [ sort values %name ], 'the broken ones are put aside');
    like(reason($name{$_}), qr/missing|no entry|digest|release/, "$_: " . reason($name{$_}) =~ s/\n//r) for sort keys %bad;
    $log->expect_log(qr/IDEM1604/);
    unlink glob "$dir/aside/*";
};

subtest 'what is put aside is bounded' => sub {
    my @old = map { sprintf '0123456789abcdef-%05d.settlement', $_ } 1 .. 1000;
    for my $n (0 .. $#old) {
        spew("$dir/aside/$old[$n]$_", 'x', 0600) for '', '.reason';
        utime 1_000_000 + $n, 1_000_000 + $n, "$dir/aside/$old[$n]";
    }
    without_registry(\&stopped, fresh_key());
    (my $prefix = (entries())[0]) =~ s/-.*//;
    my @new = map { "$prefix-0000000000000$_-broken.settlement" } 1, 2;
    spew("$dir/$_", 'broken', 0600) for @new;
    ok(back() && wait_for(sub { !entries() }, 20), 'all are dealt with');
    is_deeply([ set_aside() ], [ sort @old[ 2 .. 999 ], @new ], 'two came, and the two oldest went');
    ok(!-e "$dir/aside/$old[0].reason" && -e "$dir/aside/$old[2].reason", 'with their reasons');
    $log->expect_log(qr/IDEM1604: $new[1] .*1000 entries were aside, so the oldest of them, $old[1], was removed/);
    unlink glob "$dir/aside/*";
};

# What cannot be written: no right to; no room, by a disk of 256 KiB (of root's own, else by a limit on the size of files).
sub limit { my ($limit) = @_; run(cmd => [ 'prlimit', '--pid', $_, "--fsize=$limit:unlimited" ]) for $log->children }
my $root = $> == 0;
my ($uid, $gid) = (stat $dir)[ 4, 5 ];
sub mounted { my ($status, $said) = run(cmd => [@_], self => 1); diag($said) if $status; return !$status }
my $small = $root && mounted('mount', '-t', 'tmpfs', '-o', "size=256k,mode=0700,uid=$uid,gid=$gid", 'tmpfs', $dir) && mounted('umount', $dir);
at_end(sub { run(cmd => [ 'umount', '-l', $dir ], self => 1) }) if $small;
my %cannot = (
    right => [ sub { chmod 0500, $dir }, sub { chmod 0700, $dir }, qr/Permission denied/ ],
    room => [ sub { $small ? mounted('mount', '-t', 'tmpfs', '-o', "size=256k,mode=0700,uid=$uid,gid=$gid", 'tmpfs', $dir) : limit(600_000) },
        sub { $small ? mounted('umount', '-l', $dir) : limit('unlimited') }, qr/No space left|File too large/ ],
);
for my $what (sort keys %cannot) {
    my ($take, $give, $like) = @{ $cannot{$what} };
    subtest "the journal cannot be written: no $what" => sub {
        my @children = $log->children;
        my $said = () = $log->log =~ /IDEM1601/g;
        $take->();
        my $key = fresh_key();
        my ($first) = without_registry(\&stopped, $key, { behave => { size => 800_000 } });
        is($first->status, 200, 'the client gets the true answer');
        is(length $first->body, 800_000, 'whole');
        is_deeply([ entries(), glob "$dir/.unfinished*" ], [], 'nothing is in the journal, nor half of it');
        $log->expect_log(qr/IDEM1601.*$like/);
        is(scalar(() = $log->log =~ /IDEM1601/g), $said + 1, 'one line says so');
        $t->pg->start;
        ok(wait_for(sub { row($key)->{status} eq 'UNKNOWN' }, 20), 'the operation is UNKNOWN when the database is back');
        ran($t, 0, 'the retry', sub { problem($c->post('/charges', key => $key, body => $body), 'outcome-unknown') });
        is_deeply([ $log->children ], \@children, 'no child is lost');
        $give->();
    };
}

subtest 'at start-up' => sub {
    my $route = protected({ by => 'none' }, '/x', 'x');
    my %wrong = ("$dir.none" => qr/No such file/, $t->root . '/users' => qr/no folder/, $t->root . '/htdocs' => qr/open to others/);
    for my $folder (sort keys %wrong) {
        my ($status, $said) = $log->configtest($t->expand("IdempotencyJournal \"$folder\"\n$route"));
        isnt($status, 0, 'refused');
        like($said, qr/test\.conf:\d+: IdempotencyJournal .*$wrong{$folder}/, 'with file, line and reason') or diag($said);
    }
    my ($status, $said) = $log->configtest($t->expand("IdempotencyJournal journal\n$route"));
    is($status, 0, 'the folder that is in use is fit, and its path relative to ServerRoot') or diag($said);
};

unlike($log->log, qr/exit signal/, 'no child has crashed');
$log->allow_log(qr/IDEM09\d\d|IDEM10\d\d|dbd:/);
$t->allow_pg_log(qr/administrator command|immediate shutdown|shutting down|starting up|not yet accepting|not properly shut down|recovery|statement timeout|connection to client|terminating/);
$t->finish;
