# What the pages for operators show works: each command is read from the page and run, in the order in which it stands
# there, against a registry and an httpd that have what the page is about; and what the page says of it is looked at.
use strict;
use warnings;
use File::Copy ();
use Idem::Pages qw(blocks commands follow);
use Idem::Test;
use JSON::PP;

# A registry of that name, as in the pages, beside the database `postgres`.
my $pg = Idem::Postgres->new;
$pg->do('CREATE DATABASE registry');
$pg->{database} = 'registry';
my $bin = $pg->socket_dir;
File::Copy::copy(out_dir() . '/idempotencyctl', "$bin/idempotencyctl") or die "copy: $!\n";
chmod 0755, "$bin/idempotencyctl";
my $work = own_folder('operator');
my $journal = "$work/journal";
mkdir $journal, 0700;
give($journal);
spew("$work/answer.json", '{"order":77}', 0644);
spew("$work/reconcile-payments", slurp(source_dir() . '/conf/examples/reconcile-payments'), 0755);
spew("$work/idempotency.yml", slurp(source_dir() . '/conf/examples/alerts.yml'), 0644);

# A line of a page, as an operator's shell would run it.
sub shell {
    my ($command) = @_;
    my $env = { %{ $pg->env }, PATH => "$bin:$pg->{bin}:$ENV{PATH}", ASAN_OPTIONS => $ENV{ASAN_OPTIONS} };
    return run(cmd => [ 'sh', '-c', $command ], env => $env, dir => $work);
}

# One route that the pages configure, one that they do not; the tenant of the pages about tenants; the access log.
my ($operation, $time) = ('none', '2000-01-01 00:00+00');
my $protected = qr{<Location "/v1/charges">\n};
my $about = "Define APACHE_LOG_DIR \@ROOT\@/logs\n" . slurp(source_dir() . '/conf/examples/log.conf') . Idem::Backend::place('cgi', '/v1/charges')
    . "<Location \"/idempotency-status\">\nSetHandler idempotency-status\n</Location>\n" . "IdempotencyLease 2s\nIdempotencyJournal $journal\n"
    . protected('/v1/refunds', 'refunds.create') . protected({ who => "IdempotencyTenant const:shop1\nIdempotencyPrincipal user" }, '/shop1', 'charges.create');
my $charges = "<Location \"/v1/charges\">\nIdempotencyRoute charges.create\nIdempotencyTenant server\nIdempotencyPrincipal user\n</Location>\n";
sub config { my ($text) = @_; return $about . ($text =~ s/($protected)/$1\@AUTH\@\n/r) . ($text =~ $protected ? '' : $charges =~ s/($protected)/$1\@AUTH\@\n/r) }
my $t = Idem::Test->new(pg => $pg, db_user => 'web', config => config(''), start => 0,
    # one child (more only while an old one ends): when it has found the registry again, the server has
    mpm_config => "ServerLimit 4\nStartServers 1\nThreadsPerChild 25\nThreadLimit 25\nMaxRequestWorkers 100\nMinSpareThreads 1\nMaxSpareThreads 100\n");
my $c = $t->client;
my $shown = '';    # the configuration that the page has shown last

# A child of before may still take a connection for a moment after a graceful restart: done when it is gone.
sub reconfigure {
    my ($text) = @_;
    my @old = $t->httpd->children;
    $t->httpd->graceful(config => $t->expand(config($text)));
    return wait_for(sub { !grep { alive($_) } @old }, 30);
}
my %apachectl = (
    configtest => sub { my ($status, $said) = $t->httpd->configtest($t->expand(config($shown))); return ($status, $said) },
    graceful => sub { return reconfigure($shown) ? (0, '') : (1, 'a child of before does not end') },
);
sub command { my ($line) = @_; return $line =~ /^apachectl (\w+)$/ && $apachectl{$1} ? $apachectl{$1}->() : shell($line) }
sub place {
    return ('OPERATION' => $operation, '01a22e07-1ea7-7655-9f5c-a0218e39b21b' => $operation, '2026-12-01 00:00+00' => $time,
        '/var/lib/mod_idempotency' => $journal, '/var/log/apache2' => $t->root . '/logs', '/usr/local/lib' => $work,
        '/etc/prometheus/rules' => $work, 'curl -i' => 'curl -s -i -u a:a', 'http://localhost/' => 'http://localhost:' . $t->httpd->port . '/',
        'https://payments.example' => 'http://127.0.0.1:1', 'PGHOST=db.example.com PGUSER=postgres PGDATABASE=registry' => "PGHOST=$bin PGUSER=admin PGDATABASE=registry",
        '2027-06-30' => 1900 + (gmtime)[5] + 1 . '-06-30');
}
sub page { my ($file, @steps) = @_; return subtest $file => sub { $shown = ''; follow($file, place => \&place, apache => sub { $shown = $_[0] }, run => \&command, yaml => \&prometheus, steps => \@steps) } }
sub charge { my ($key, %arg) = @_; return $c->post($arg{at} // '/v1/charges', key => $key, body => $arg{body} // '{"amount":10}') }
sub state_of { return $pg->value("SELECT status FROM idempotency_records WHERE operation_id = '$_[0]'") }
my @test = [ qr/^apachectl configtest$/, {} ];
sub reload { my (%step) = @_; return (@test, [ qr/^apachectl graceful$/, \%step ]) }

# One of unknown outcome, made anew: (key, operation)
sub doubtful {
    my ($at) = @_;
    my $key = fresh_key();
    $t->backend->behave(status => 500);
    $operation = charge($key, at => $at)->operation;
    $t->backend->behave;
    is(state_of($operation), 'UNKNOWN', 'one of unknown outcome');
    return $key;
}

sub prometheus {
    my ($text) = @_;
    my $file = spew("$work/prometheus.yml", $text =~ s{/etc/prometheus/rules}{$work}r, 0644);
    my ($status, $said) = run(cmd => [ 'promtool', 'check', 'config', $file ]);
    is($status, 0, 'promtool takes the configuration') or diag($said);
}

# The first one makes the tables that all the others need.
page('README.md',
    [ qr/^idempotencyctl migrate$/, { after => sub {
        is($pg->value('SELECT writer_epoch FROM idempotency_control'), 1, 'the registry is made');
        $pg->do('CREATE ROLE web LOGIN IN ROLE idempotency_writer');
        $t->httpd->start;
        my ($least) = grep { $_->{text} =~ /^DBDriver/ } blocks('README.md');
        my ($status, $said) = $t->httpd->configtest($least->{text}, pg => undef, dbd => "\n");
        is($status, 0, 'the least configuration is one') or diag($said);
    } } ],
    [ qr/^curl -i -H 'Idempotency-Key: /, { says => qr/\AHTTP\S+ 200 .*^Idempotency-Operation: /ms, after => sub {
        my ($key) = map { /Idempotency-Key: ([\w-]+)/ } map { commands($_) } blocks('README.md');
        my $retry = $c->post('/v1/charges', key => $key, type => 'application/x-www-form-urlencoded', body => 'amount=10', host => 'localhost:' . $t->httpd->port);
        is($retry->header('Idempotency-Replayed'), 'true', 'once more is a replay');
    } } ],
);

my $before;
page('docs/switching-on.md',
    [ qr/^idempotencyctl status$/, {} ],
    reload(after => sub {
        $before = fresh_key();
        ran($t, 2, 'in Shadow', sub { is(charge($before)->status, 200, 'a request') for 1, 2 });
        is($pg->value("SELECT count(*) FROM idempotency_records WHERE scope_version <> 'shadow-v1' AND idem_key = '$before'"), 0, 'no record that counts');
        ok(wait_for(sub { ((shell('idempotencyctl shadow-report'))[1]) =~ /1 would be replayed/ }, 20), 'it is counted');
        $time = $pg->value("SELECT to_char(now() - interval '1 hour', 'YYYY-MM-DD HH24:MI') || '+00'");
    }),
    [ qr/^idempotencyctl shadow-report$/, { says => qr/^charges\.create\n.*2 requests, 2 with a key.*1 would run\n.*1 would be replayed$/s } ],
    [ qr/^idempotencyctl shadow-report --since/, { says => qr/2 requests/ } ],
    reload(after => sub {
        ran($t, 1, 'in Enforce', sub {
            my $first = charge($before);
            is($first->status, 200, 'what Shadow has seen does not count: it runs');
            is_replay(charge($before), $first, 'the retry');
        });
    }),
    [ qr/^idempotencyctl list --route charges\.create --limit 5$/, { says => qr/SUCCEEDED/ } ],
    [ qr/^idempotencyctl list --route charges\.create --state UNKNOWN$/, {} ],
    reload(after => sub {
        ran($t, 0, 'in ReadOnly', sub { ok(charge($before)->replayed, 'what has an answer is replayed'); problem(charge(fresh_key()), 'writer-fenced') });
    }),
    [ qr/^idempotencyctl list --route charges\.create --state EXECUTING$/, { after => sub { unlike($_[0], qr/EXECUTING/, 'nothing runs') } } ],
);
reconfigure('');

my ($done, $first, $running, $left);
page('docs/rolling-back.md',
    [ qr/^idempotencyctl epoch show$/, { says => qr/writer epoch 1/, after => sub {
        ($done, $left) = (fresh_key(), fresh_key());
        $first = charge($done);
        $t->backend->behave(hold => 1);
        $running = $c->send(POST => '/v1/charges', key => $left, body => '{}');
        ok(wait_for(sub { $t->record_count("idem_key = '$left' AND status = 'EXECUTING'") == 1 }, 20), 'one runs');
    } } ],
    [ qr/^idempotencyctl epoch raise$/, { says => qr/writer epoch 2/, after => sub {
        ran($t, 0, 'the old side', sub { is_replay(charge($done), $first, 'what has an answer'); problem(charge(fresh_key()), 'writer-fenced') });
    } } ],
    [ qr/^idempotencyctl epoch drain --wait 60s$/, { before => sub { $t->backend->release }, after => sub {
        is($running->response->status, 200, 'what it had begun comes to its end');
        $t->backend->behave(hold => 1);
        $pg->do('UPDATE idempotency_control SET writer_epoch = 1');
        $left = fresh_key();
        $running = $c->send(POST => '/v1/charges', key => $left, body => '{}');
        ok(wait_for(sub { $t->record_count("idem_key = '$left' AND status = 'EXECUTING'") == 1 }, 20), 'another one that does not');
        $pg->do('UPDATE idempotency_control SET writer_epoch = 2');
        is((shell('idempotencyctl epoch drain --wait 1s'))[0], 1, 'exit status 1: something still runs');
    } } ],
    [ qr/^idempotencyctl epoch drain --quarantine$/, { says => qr/1 operations are UNKNOWN now/ } ],
    [ qr/^idempotencyctl list --state UNKNOWN$/, { says => qr/UNKNOWN/, after => sub {
        $t->backend->release;
        is($running->response->status, 200, 'its server comes to the end after all');
        is($pg->value("SELECT status FROM idempotency_records WHERE idem_key = '$left'"), 'SUCCEEDED', 'and that counts');
        $t->backend->behave;
    } } ],
    reload(after => sub { ran($t, 1, 'the new side', sub { is(charge(fresh_key())->status, 200, 'writes'); is_replay(charge($done), $first, 'and knows') }) }),
    [ qr/^idempotencyctl epoch raise --to 3$/, { says => qr/writer epoch 3/, after => sub {
        problem(charge(fresh_key()), 'writer-fenced');
        my ($status, $said) = shell('idempotencyctl epoch raise --to 3');
        is($status, 1, 'the same number is refused');
        like($said, qr/only be raised/, 'and says why');
        $pg->do('UPDATE idempotency_control SET writer_epoch = 1');
    } } ],
);
reconfigure('');

my %key = map { $_ => fresh_key() } qw(final running after);
my (%answer, %op);
page('docs/after-a-restore.md',
    [ qr/^pg_dump /, { before => sub {
        $answer{final} = charge($key{final});
        $t->backend->behave(hold => 1);
        $running = $c->send(POST => '/v1/charges', key => $key{running}, body => '{"amount":10}');
        ok(wait_for(sub { $t->record_count("idem_key = '$key{running}' AND status = 'EXECUTING'") == 1 }, 20), 'one is under way at the time of the backup');
        $time = $pg->value("SELECT to_char(clock_timestamp() + interval '1 second', 'YYYY-MM-DD HH24:MI:SS') || '+00'");
    }, after => sub {
        $t->backend->release;
        $answer{running} = $running->response;
        $t->backend->behave;
        $answer{after} = charge($key{after});
        %op = map { $_ => $answer{$_}->operation } keys %answer;
        is_replay(charge($key{after}), $answer{after}, 'one of after the backup');
        # the failure: the registry is lost, and so is what httpd's memory has of it
        $t->httpd->stop;
        { local $pg->{database} = 'postgres'; $pg->do('DROP DATABASE registry WITH (FORCE)') }
        $t->httpd->start;
    } } ],
    [ qr/^createdb restored$/, {} ],
    [ qr/^pg_restore /, {} ],
    [ qr/^PGDATABASE=restored idempotencyctl migrate$/, { after => sub { problem(charge($key{final}), 'store-unavailable') } } ],
    [ qr/^PGDATABASE=restored idempotencyctl epoch raise --to 2$/, { says => qr/writer epoch 2/ } ],
    [ qr/^PGDATABASE=restored idempotencyctl verify --after-restore /, { status => 1, after => sub {
        like($_[0], qr/^$op{running}  was under way at the time of the backup$/m, 'lists what was under way');
        unlike($_[0], qr/$op{final}|$op{after}/, 'and nothing else');
    } } ],
    [ qr/^PGDATABASE=restored idempotencyctl epoch drain --quarantine$/, { says => qr/1 operations are UNKNOWN now.*$/s } ],
    [ qr/^psql .*RENAME TO registry'$/, { after => sub {
        ok(wait_for(sub { charge($key{final})->status == 200 }, 30), 'the web server finds it by itself');
        ran($t, 0, 'restored', sub {
            is_replay(charge($key{final}), $answer{final}, 'what was final at the backup');
            problem(charge($key{after}), 'writer-fenced');
            problem(charge($key{running}), 'outcome-unknown', operation => 1);
            problem(charge(fresh_key()), 'writer-fenced');
        });
    } } ],
    [ qr/^idempotencyctl list --state UNKNOWN$/, { after => sub { $operation = $op{running}; like($_[0], qr/$operation/, 'lists it') } } ],
    [ qr/^idempotencyctl show OPERATION$/, { says => qr/quarantined/ } ],
    [ qr/^idempotencyctl resolve OPERATION --succeeded /, { after => sub { ran($t, 0, 'resolved', sub {
        my $told = charge($key{running})->json;
        is_deeply([ @$told{qw(type outcome operation)} ], [ 'tag:mod-idempotency,2026:response-not-stored', 'succeeded', $op{running} ], 'the retry is told that it is done');
    }) } } ],
    [ qr/^awk .*idempotency\.log \| while read op/, { after => sub {
        like($_[0], qr/^$op{after}$/m, 'what ran after the backup is found in the access log');
        unlike($_[0], qr/$op{final}|$op{running}/, 'and what the registry knows is not listed');
    } } ],
    reload(after => sub { ran($t, 1, 'writing again', sub { is(charge(fresh_key())->status, 200, 'a new key'); is_replay(charge($key{final}), $answer{final}, 'what was final') }) }),
    reload(after => sub {
        ran($t, 1, 'one route closed', sub { problem(charge($key{after}), 'writer-fenced'); is(charge(fresh_key(), at => '/v1/refunds')->status, 200, 'the other one is open') });
    }),
    [ qr/^idempotencyctl verify$/, { says => qr/no fault/ } ],
);
reconfigure("IdempotencyWriterEpoch 2\n");
ran($t, 1, 'open again', sub { is(charge($key{after})->status, 200, 'a key of between backup and failure runs a second time, as the page says') });

page('docs/every-day.md',
    [ qr/^promtool check rules /, {} ],
    [ qr/^curl -s /, { says => qr/^idempotency_store_up\b.* 1$/m, after => sub {
        my $page = slurp(source_dir() . '/docs/every-day.md');
        my @alerts = slurp("$work/idempotency.yml") =~ /- alert: (\w+)/g;
        is_deeply([ sort $page =~ /^\| `(Idempotency\w+)` \|/mg ], [ sort @alerts ], 'the page has every alert, and no other');
    } } ],
    [ qr/^idempotencyctl status$/, {} ],
    [ qr/^idempotencyctl list --state UNKNOWN$/, { before => sub { doubtful() }, after => sub { like($_[0], qr/$operation/, 'lists it') } } ],
    [ qr/^idempotencyctl show OPERATION$/, { says => qr/UNKNOWN/ } ],
    [ qr/^idempotencyctl journal list /, {} ],
    [ qr/^idempotencyctl verify$/, { says => qr/no fault/ } ],
    [ qr/^idempotencyctl sweep$/, {} ],
);

page('docs/when-something-dies.md',
    [ qr/^idempotencyctl list --state UNKNOWN$/, { after => sub { like($_[0], qr/$operation/, 'lists it') } } ],
    [ qr/^idempotencyctl show OPERATION/, { says => qr/UNKNOWN/ } ],
    [ qr/--succeeded --code 201 --body-file answer\.json/, do { my $key; { before => sub { $key = doubtful() }, after => sub {
        my $told = charge($key);
        is($told->status . $told->body, '201{"order":77}', 'the next retry gets that answer');
    } } } ],
    [ qr/--as-answered/, do { my $key; { before => sub { $key = doubtful() }, after => sub { is(charge($key)->status, 500, 'the next retry is told the same') } } } ],
    [ qr/--not-executed/, do { my $key; { before => sub { $key = doubtful() }, status => 1, says => qr/--owner-is-dead/, after => sub { is(state_of($operation), 'UNKNOWN', 'refused while its child lives') } } } ],
    [ qr/^idempotencyctl journal list /, {} ],
    [ qr/^idempotencyctl journal apply /, {} ],
);

my $alias;
page('docs/operations.md',
    [ qr/^PGHOST=\S+ PGUSER=\S+ PGDATABASE=\S+ idempotencyctl migrate$/, {} ],
    [ qr/^idempotencyctl status$/, { says => qr/UNKNOWN/ } ],
    [ qr/^idempotencyctl list --state UNKNOWN$/, { says => qr/UNKNOWN/ } ],
    [ qr/^idempotencyctl show 01a2/, { says => qr/UNKNOWN/ } ],
    [ qr/reconcile --exec/, { after => sub { is(state_of($operation), 'UNKNOWN', 'a provider that cannot be reached leaves it as it is') } } ],
    [ qr/^idempotencyctl sweep$/, {} ],
    [ qr/^idempotencyctl explain \S+ --request retry\.http$/, { before => sub {
        spew("$work/retry.http", join("\r\n", 'POST /v1/charges HTTP/1.1', 'Host: localhost:' . $t->httpd->port, 'Content-Type: application/json') . "\r\n\r\n{\"amount\":11}", 0644);
    }, says => qr/what differs: .*payload/ } ],
    [ qr/^idempotencyctl alias add /, { after => sub { is($pg->value('SELECT count(*) FROM idempotency_aliases'), 1, 'one alias') } } ],
    [ qr/^idempotencyctl alias list$/, { says => qr/old\.example/ } ],
    [ qr/^idempotencyctl alias remove /, { after => sub { is($pg->value('SELECT count(*) FROM idempotency_aliases'), 0, 'none any more') } } ],
    [ qr/^idempotencyctl erase --tenant shop1 +#/, { before => sub { charge(fresh_key(), at => '/shop1') }, status => 1, after => sub { is($t->record_count("tenant_id = 'shop1'"), 1, 'one within its retention stays, and exit status 1 says so') } } ],
    [ qr/^idempotencyctl erase --tenant shop1 --now +#/, { after => sub { is($t->record_count("tenant_id = 'shop1'"), 0, 'nothing is left') } } ],
    [ qr/^idempotencyctl erase --tenant shop1 --now --journal /, {} ],
);

subtest 'no page is left out' => sub {
    my %done = map { $_ => 1 } qw(README.md docs/switching-on.md docs/rolling-back.md docs/after-a-restore.md docs/every-day.md docs/when-something-dies.md docs/operations.md);
    for my $file (grep { !$done{$_} } map { s{^\Q@{[source_dir()]}\E/}{}r } glob source_dir() . '/docs/*.md') {
        is(join("\n", map { commands($_) } blocks($file)), '', "$file shows no command that nobody tries");
    }
};
$t->httpd->expect_log(qr/IDEM0902/);
$t->httpd->allow_log(qr/AH00491|AH00045/);
$t->allow_pg_log(qr/database "registry" does not exist|terminating connection/);
$t->finish;
