# The database's disk is full: for the table, and for its log of changes. What ran is told so, nothing runs that is not
# recorded, and it goes on when there is room again.
#
# Root has a disk of its own, a file on a loop device with an ext4 in it. Everybody else has a limit on the size of
# files, which the server's processes meet in the same place with EFBIG for ENOSPC.
use strict;
use warnings;
use Idem::Test;
use Time::HiRes qw(time);

my $t = Idem::Test->new(backends => ['proxy'], pg_arg => { initdb => ['--wal-segsize=1'] },
    mpm_config => "ServerLimit 1\nStartServers 1\nThreadsPerChild 25\nMaxRequestWorkers 25\nMinSpareThreads 1\nMaxSpareThreads 25\n",
    config => "IdempotencyStoreTimeout 1s\n" . protected({ by => 'proxy' }, '/proxy', 'proxy'));
my $twin = $t->twin(mpm => 'prefork');
my $c = $t->both;

sub post { return $c->post('/proxy', key => $_[0], body => '{"amount":10}') }

sub as_root {
    my ($status, $said) = run(cmd => [@_], self => 1);
    diag("@_: $said") if $status;
    return $status == 0;
}

# A small disk with the records on it; subs that fill it and make room again.
sub small_disk {
    my $root = $t->pg->socket_dir;
    my ($image, $mount) = ("$root/image", "$root/disk");
    mkdir $mount;
    as_root('truncate', '-s', '12M', $image) && as_root('mkfs.ext4', '-q', '-O', '^has_journal', '-m', '0', $image)
        && as_root('mount', '-o', 'loop', $image, $mount) or return ();
    at_end(sub { as_root('umount', '-l', $mount) });
    mkdir "$mount/space";
    chmod 0700, "$mount/space";
    give("$mount/space");
    $t->pg->do("CREATE TABLESPACE small LOCATION '$mount/space'");
    $t->pg->do('ALTER TABLE idempotency_records SET TABLESPACE small');
    $t->pg->do('CHECKPOINT');
    return (sub { run(cmd => [ 'dd', 'if=/dev/zero', "of=$mount/filler", 'bs=4k' ], self => 1) }, sub { unlink "$mount/filler" });
}

sub limit {
    my ($limit) = @_;
    run(cmd => [ 'prlimit', '--pid', $_, "--fsize=$limit:unlimited" ]) for $t->pg->processes;
}

# The table is larger than a log segment and has no room left in its pages, neither for a record with a response nor for
# one without: the next record needs another page.
my ($key, $first) = (fresh_key());
is(($first = post($key))->status, 200, 'runs while there is room');
$t->pg->do("ALTER TABLE idempotency_records SET (fillfactor = 100)");
my @columns = map { $_->{attname} } $t->pg->query("SELECT attname FROM pg_attribute WHERE attrelid = 'idempotency_records'::regclass AND attnum > 0 AND NOT attisdropped");
my $list = join ', ', @columns;
my $as = sub { my %other = @_; return join ', ', map { $other{$_} // $_ } @columns };
my %new = (idem_key => "'filler-' || n", operation_id => 'gen_random_uuid()');
my %live = (%new, idem_key => "'live-' || n", status => "'EXECUTING'", map { $_ => 'NULL' } grep { /^(?:outcome|response_|settled_at|expires_at|tombstone_until)/ } @columns);
for my $row (\%new, \%live) {
    $t->pg->do("INSERT INTO idempotency_records ($list) SELECT @{[ $as->(%$row) ]} FROM idempotency_records, generate_series(1, 1000) n WHERE idem_key LIKE 'key-%'");
}
$t->pg->do('CHECKPOINT');

my ($fill, $free) = $> == 0 ? small_disk() : ();
note($fill ? 'a loop device' : 'a limit on the size of files');
$fill //= sub { limit(1 << 20) };
$free //= sub { limit('unlimited') };

subtest 'no room for records' => sub {
    $fill->();
    my (@accepted, @refused);
    my $before = time;
    my $count = executed($t, sub {
        for (1 .. 60) {
            my $new = fresh_key();
            my $res = post($new);
            push @{ $res->status == 200 ? \@accepted : \@refused }, [ $new, $res ];
        }
    });
    cmp_ok((time - $before) / 60, '<', 1, 'each answered in time');
    note(@accepted . ' accepted, ' . @refused . ' refused');
    cmp_ok(scalar @refused, '>', 10, 'requests are refused');
    problem($refused[-1][1], 'store-unavailable', secrets => [ 'No space', 'too large', 'idempotency_records' ]);
    is((grep { $_->[1]->status != 503 } @refused), 0, 'as the store is not available');
    is($count, scalar @accepted, 'what ran is what was accepted');
    is_replay(post($key), $first, 'what was there is still replayed');
    $free->();
    ok(wait_for(sub { post($refused[0][0])->status == 200 }, 10), 'runs when there is room');
    my %state = map { $_->{idem_key} => $_->{status} } $t->records("idem_key LIKE 'key-%'");
    is((grep { ($state{ $_->[0] } // '') !~ /^(?:SUCCEEDED|EXECUTING|UNKNOWN)$/ } @accepted), 0, 'every accepted one is on record');
};

subtest 'no room for the log of changes' => sub {
    my $wal = $t->pg->data . '/pg_wal';
    limit(4096);
    ran($t, 0, 'without it', sub {
        my $res;
        for (1 .. 5) {
            my $before = time;
            $res = post(fresh_key());
            is($res->status, 503, 'refused');
            cmp_ok(time - $before, '<', 3, 'in time');
        }
        problem($res, 'store-unavailable');
    });
    limit('unlimited') if alive($t->pg->pid);
    $t->pg->stop('immediate');
    $t->pg->start;
    my $again;
    ok(wait_for(sub { ($again = post($key))->status == 200 }, 20), 'back with room and a start of the server');
    is_replay($again, $first, 'what was there is still there');
    ran($t, 1, 'afterwards', sub { is(post(fresh_key())->status, 200, 'runs') });
};

unlike($_->httpd->log, qr/exit signal/, 'no child has crashed') for $t, $twin;
$t->httpd->expect_log(qr/IDEM1003.*idem_reserve was refused/);
$t->httpd->allow_log(qr/dbd:|IDEM0902|IDEM0806|IDEM1003|IDEM0401/);
$t->allow_pg_log(qr/No space left|File too large|could not|PANIC|terminating connection|server process|database system|background worker|unexpected EOF|aborting/);
$t->finish;
