# Owners that live, owners that come late: what the lease watches over, and what a late owner may still do. Retries come
# to a second server, which knows of the first what the registry says.
use strict;
use warnings;
use Idem::Orders;
use Idem::Test;
use Time::HiRes qw(time);

# Room for new children while old ones still have requests that wait.
my $t = Idem::Test->new(start => 0, pg_arg => { settings => { shared_preload_libraries => 'pg_stat_statements', 'pg_stat_statements.track' => 'all' } },
    mpm_config => "ServerLimit 6\nStartServers 2\nThreadsPerChild 25\nMaxRequestWorkers 150\nMinSpareThreads 1\nMaxSpareThreads 150\n");
my $orders = Idem::Orders->new($t);
my $pg = $t->pg;
my $root = $t->root;
mkdir "$root/htdocs/$_" for qw(front front-again front-marked);
$t->httpd->{config} = $t->expand($orders->load . "IdempotencyStoreTimeout 3s\nIdempotencyLease 2s\n"
    . join('', map { $orders->place("/$_", $_) } qw(external transactional repeatable))
    . $orders->place('/big', 'repeatable', 'IdempotencyMaxSnapshot 10')
    . $orders->place('/short', 'external', 'IdempotencyMaxRun 1s') . $orders->place('/short-again', 'repeatable', 'IdempotencyMaxRun 1s')
    # a front controller: the address is protected, what runs is another one
    . qq(ScriptAlias "/plain" "@{[ $orders->script ]}"\n)
    . join('', map { my ($path, $effect) = @$_;
        qq(<Location "$path">\n\@AUTH\@\nIdempotencyRoute ) . substr($path, 1) . qq(\nIdempotencyTenant server\nIdempotencyPrincipal user\nIdempotencyEffect $effect\n</Location>\n)
        . qq(<Directory "$root/htdocs$path">\nRewriteEngine On\nRewriteRule ^ /plain/@{[ $effect =~ /(\w+)/ ]} [L]\n</Directory>\n) }
        [ '/front', 'external' ], [ '/front-again', 'repeatable' ], [ '/front-marked', "external\nIdempotencyDispatchMark On" ]));
$t->httpd->start;
my $twin = $t->twin(config => $t->httpd->{config} . qq(DocumentRoot "$root/htdocs"\n), httpd => { env => $t->httpd->{env} },
    mpm_config => "ServerLimit 2\nStartServers 1\nThreadsPerChild 25\nMaxRequestWorkers 50\nMinSpareThreads 1\nMaxSpareThreads 50\n");
$twin->httpd->start;
my ($c, $other) = map { $_->client->with(authority => 'shop.example') } $t, $twin;
my $body = '{"amount":10}';
my $tags = 0;

sub row { my ($key) = @_; return ($t->records("idem_key = '$key'"))[0] // {} }
sub post { my ($place, $key) = @_; return $other->post($place, key => $key, body => $body) }

# Begins a request that waits at a point; its connection and the name of its wait.
sub at {
    my ($place, $key, $kind, $point) = @_;
    my $tag = 'w' . ++$tags;
    my $running = $c->send(POST => $place, key => $key, body => $body, headers => [ ($kind eq 'stop' ? 'X-Stop' : 'X-Hold') => "$point $tag" ]);
    ok(wait_for(sub { $orders->reached($tag) }, 20), "$place: it is at its point");
    return ($running, $tag);
}

# Every thread of it stands still.
sub stop {
    my ($pid) = @_;
    kill STOP => $pid;
    return wait_for(sub { !grep { (eval { slurp($_) } // '') !~ /\) T / } glob "/proc/$pid/task/*/stat" });
}

# The operation has run for ever, and so counts as left, though its child is alive.
sub lapse { my ($key) = @_; $pg->do("UPDATE idempotency_records SET owned_at = owned_at - interval '1 day' WHERE idem_key = '$key'") }
sub older { my ($key, $seconds) = @_; return wait_for(sub { $pg->value("SELECT now() - owned_at > interval '$seconds s' FROM idempotency_records WHERE idem_key = '$key'") eq 't' }, 20) }

subtest 'a backend that needs seven times the lease' => sub {
    my $key = fresh_key();
    my ($running, $tag) = at('/external', $key, hold => 'before');
    for my $leases (1.5, 3) {
        ok(older($key, 2 * $leases), "$leases leases have passed");
        problem(post('/external', $key), 'in-progress', operation => 1);
    }
    $orders->go($tag);
    my $first = $running->response;
    is($first->status, 201, 'it comes to its end');
    is_replay(post('/external', $key), $first, 'the retry');
    is($orders->count($first->operation), 1, 'one effect');
};

subtest 'one small write for each child and interval, whatever runs' => sub {
    # writes to owners and records, as PostgreSQL counts them: sent by a child's thread, and by requests
    $pg->do('CREATE EXTENSION pg_stat_statements; CREATE TABLE since AS SELECT clock_timestamp() AS at');
    $pg->do('SELECT pg_stat_statements_reset()');
    my @all = $c->parallel(map { [ POST => '/external', key => fresh_key(), body => $body ] } 1 .. 30);
    is((grep { $_->status == 201 } @all), 30, 'thirty operations run');
    my ($running, $tag) = at('/external', my $key = fresh_key(), hold => 'before');
    ok(older($key, 1), 'and one of them for a while');
    my ($w) = $pg->query(q(SELECT coalesce(sum(calls) FILTER (WHERE query ~* '(INSERT INTO|UPDATE) idempotency_owners'), 0) AS beats,
        coalesce(sum(rows) FILTER (WHERE query ~* '(INSERT INTO|UPDATE) idempotency_records' AND query !~* 'alone AS'), 0) AS writes,
        coalesce(max(wal_bytes / nullif(calls, 0)) FILTER (WHERE query ~* '(INSERT INTO|UPDATE) idempotency_owners'), 0) AS wal,
        (SELECT count(*) FROM idempotency_owners) AS children,
        (SELECT extract(epoch FROM clock_timestamp() - at) FROM since) AS seconds FROM pg_stat_statements));
    # every quarter of the lease of 2 s
    cmp_ok($w->{beats}, '>', 0, 'there are heartbeats');
    cmp_ok($w->{beats}, '<=', $w->{children} * (2 * $w->{seconds} + 3), "$w->{beats} heartbeats of $w->{children} children in $w->{seconds} s");
    cmp_ok($w->{wal}, '<', 20_000, "of $w->{wal} octets of log each, pages written whole included");
    # one statement may do both
    is($w->{writes}, 31 + 30, 'a record is touched once after its reserve, by its settlement');
    $orders->go($tag);
    $running->response;
    $pg->do('DROP EXTENSION pg_stat_statements; DROP TABLE since');
};

subtest 'C070 the owner is stopped, and goes on after its lease' => sub {
    for my $mode (qw(transactional repeatable)) {
        my $key = fresh_key();
        my ($running, $tag) = at("/$mode", $key, hold => 'before');
        my $operation = row($key)->{operation_id};
        my ($owner) = $pg->query("SELECT o.pid, o.owner FROM idempotency_owners o JOIN idempotency_records r USING (owner) WHERE r.idem_key = '$key'");
        stop($owner->{pid});
        problem(post("/$mode", $key), 'in-progress');
        my $second;
        ok(wait_for(sub { $second = post("/$mode", $key); $second->status == 201 }, 20), "$mode: after the lease a retry is the owner");
        is($second->json->{generation}, 2, "$mode: of generation 2");
        is($second->operation, $operation, "$mode: of the same operation");
        $orders->go($tag);
        ok(wait_for(sub { -e "$orders->{dir}/$tag.end" }), "$mode: the old script ends");
        kill CONT => $owner->{pid};
        my $late = $running->response;
        is_replay($late, $second, "$mode: the late client gets what every retry gets");
        is_replay(post("/$mode", $key), $second, "$mode: the newer answer stays");
        is($orders->count($operation), $mode eq 'transactional' ? 1 : 2, "$mode: effects");
        is($orders->outbox($operation), 1, "$mode: one outbox row") if $mode eq 'transactional';
        like(slurp("$orders->{dir}/$tag.end"), qr/IDEM1/, "$mode: the old transaction was refused") if $mode eq 'transactional';
        like($t->httpd->log, qr/IDEM0805: operation $operation: the settlement .* of generation 1 came too late/, "$mode: the log says so");
    }
    $t->httpd->expect_log(qr/IDEM0805/);
};

subtest 'the late answer is larger than what is kept' => sub {
    my $key = fresh_key();
    my ($running, $tag) = at('/big', $key, hold => 'after');
    lapse($key);
    my $second = post('/big', $key);
    is($second->status, 201, 'taken over');
    $orders->go($tag);
    my $late = $running->response;
    is($late->json->{type}, 'tag:mod-idempotency,2026:response-not-stored', 'the late client is told what every retry is told') or diag($late->body);
    is($late->json->{original_status}, 201, 'of the newer answer');
};

subtest 'late, while the next owner is at work' => sub {
    my $key = fresh_key();
    my ($running, $tag) = at('/repeatable', $key, hold => 'after');
    lapse($key);
    my ($second, $other) = at('/repeatable', $key, hold => 'before');
    $orders->go($tag);
    problem($running->response, 'in-progress', operation => 1);
    $orders->go($other);
    is($second->response->json->{generation}, 2, 'that one comes to its own end');
};

subtest 'IdempotencyMaxRun: a hung worker of a living child' => sub {
    my $key = fresh_key();
    my ($running, $tag) = at('/short', $key, hold => 'after');
    ok(older($key, 1), 'its time is over');
    problem(post('/short', $key), 'outcome-unknown');
    $orders->go($tag);
    my $first = $running->response;
    is($first->status, 201, 'the late answer of the same generation');
    is(row($key)->{status}, 'SUCCEEDED', 'ends UNKNOWN');
    is_replay(post('/short', $key), $first, 'the retry');
    is($orders->count($first->operation), 1, 'one effect');
    $key = fresh_key();
    ($running, $tag) = at('/short-again', $key, hold => 'before');
    ok(older($key, 1), 'repeatable: its time is over');
    is(post('/short-again', $key)->json->{generation}, 2, 'repeatable: it is run again');
    $orders->go($tag);
    $running->response;
    $t->httpd->expect_log(qr/IDEM0401/);
};

subtest 'too late to its backend' => sub {
    # The child hangs between reserve and dispatch, longer than half a lease.
    my $key = fresh_key();
    my ($running, $tag) = at('/front/pay', $key, stop => 'redirected');
    my $operation = row($key)->{operation_id};
    lapse($key);
    problem(post('/front/pay', $key), 'outcome-unknown');
    ok(older($key, 86401.2), 'half a lease is over');
    $orders->go($tag);
    problem($running->response, 'outcome-unknown', operation => 1);
    is($orders->count($operation), 0, 'external: its backend has not run');

    $key = fresh_key();
    ($running, $tag) = at('/front-again/pay', $key, stop => 'redirected');
    lapse($key);
    my $second = post('/front-again/pay', $key);
    is($second->status, 201, 'repeatable: taken over');
    ok(older($key, 1.2), 'half a lease is over');
    $orders->go($tag);
    is_replay($running->response, $second, 'repeatable: the late client');
    is($orders->count($second->operation), 1, 'repeatable: only the new owner ran');

    # Late, and still the owner.
    $key = fresh_key();
    ($running, $tag) = at('/front/pay', $key, stop => 'redirected');
    ok(older($key, 1.5), 'late');
    $orders->go($tag);
    is($running->response->status, 201, 'who still owns the record runs');
    $t->httpd->expect_log(qr/IDEM1501/);
};

subtest 'the registry is away when a late owner comes to its backend' => sub {
    my $key = fresh_key();
    my ($running, $tag) = at('/front/pay', $key, stop => 'redirected');
    my $operation = row($key)->{operation_id};
    ok(older($key, 1.2), 'half a lease is over');
    $pg->stop('immediate');
    $orders->go($tag);
    problem($running->response, 'store-unavailable');
    $pg->start;
    is($orders->count($operation), 0, 'its backend has not run');
    ok(wait_for(sub { !%{ row($key) } }, 20), 'its record is withdrawn');
    my $res;
    ok(wait_for(sub { $res = post('/front/pay', $key); $res->status == 201 }, 20), 'the retry runs') or diag($res->body);
    isnt($res->operation, $operation, 'as a new operation');
    $t->httpd->expect_log(qr/IDEM1502/);
    $t->httpd->allow_log(qr/IDEM09\d\d|IDEM10\d\d|dbd:/);
};

subtest 'an effect attempt that is open' => sub {
    for my $mode (qw(external transactional repeatable)) {
        my $key = fresh_key();
        my ($running, $tag) = at("/$mode", $key, stop => 'handler');
        $pg->do("UPDATE idempotency_records SET attempts = 1, attempts_open = 1 WHERE idem_key = '$key'");
        lapse($key);
        problem(post("/$mode", $key), 'outcome-unknown', operation => 1);
        is(row($key)->{status}, 'UNKNOWN', "$mode: nobody takes it over");
        $orders->go($tag);
        $running->response;
    }
};

subtest 'somebody said "not executed" of what was' => sub {
    my $key = fresh_key();
    my ($running, $tag) = at('/external', $key, hold => 'after');
    my $operation = row($key)->{operation_id};
    lapse($key);
    problem(post('/external', $key), 'outcome-unknown');
    my ($status, $said) = $t->ctl('resolve', $operation, '--not-executed', '--reason', 'I think not');
    is($status, 1, 'refused while the child lives') or diag($said);
    ($status, $said) = $t->ctl('resolve', $operation, '--not-executed', '--owner-is-dead', '--reason', 'I think not');
    is($status, 0, 'unless somebody insists') or diag($said);
    $orders->go($tag);
    my $late = $running->response;
    is($late->status . ' ' . ($late->json->{generation} // ''), '201 1', 'the late client of an external operation is told what really happened');
    ok(!$late->replayed, 'it is the first answer');
    is(row($key)->{status}, 'RESERVED', 'the record is as it was resolved');
    like($t->httpd->log, qr/IDEM0805: operation $operation/, 'the log says so');
};

# Last: httpd is told another mode while operations run. The stricter one of record and route decides.
subtest 'a route changes its mode' => sub {
    my @cases = map { { from => $_->[0], to => $_->[1], key => fresh_key() } } [ external => 'repeatable' ], [ repeatable => 'external' ], [ transactional => 'external' ];
    my %place = map { $_->{from} => $_ } @cases;
    @$_{qw(running tag)} = at("/$_->{from}", $_->{key}, stop => 'handler') for @cases;
    my $marked = fresh_key();
    my ($first, $tag) = at('/front-marked/pay', $marked, stop => 'redirected');
    my $config = $t->httpd->{config};
    $config =~ s{(<Location "/(external|repeatable|transactional|front-marked)">.*?IdempotencyEffect )\w+}{$1 . ($place{$2} ? $place{$2}{to} : 'transactional')}gse;
    $t->httpd->graceful(config => $config);
    $twin->httpd->graceful(config => $config);
    lapse($_) for $marked, map { $_->{key} } @cases;
    for my $case (@cases) {
        my $res = post("/$case->{from}", $case->{key});
        if ($case->{from} eq 'transactional') {
            is($res->json->{generation}, 2, "RESERVED, transactional, now external: taken over: nothing has happened yet") or diag($res->body);
            next;
        }
        problem($res, 'outcome-unknown');
    }
    my ($second, $other) = at('/front-marked/pay', $marked, hold => 'before');
    my $row = row($marked);
    is("$row->{status} $row->{effect_mode} $row->{owner_generation}", 'EXECUTING external 2',
        'external and only reserved, now transactional: taken over, and it stays external');
    $orders->go($other, $tag, map { $_->{tag} } @cases);
    is($second->response->status, 201, 'the new owner comes to its end');
    $_->response for $first, map { $_->{running} } @cases;
};

$t->httpd->allow_log(qr/IDEM0808|IDEM1501/);
$t->allow_pg_log(qr/IDEM1|generation|administrator command|immediate shutdown|shutting down|starting up|not yet accepting|not properly shut down|recovery|terminating|idempotency_/);
$t->finish;
