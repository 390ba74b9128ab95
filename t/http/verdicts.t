# First come, retry, other request, still running: the verdicts on a key, and what they leave in the store, whichever of two
# servers is asked.
use strict;
use warnings;
use Idem::Test;
use Time::HiRes qw(time);

my $t = Idem::Test->new(config => protected('/charges', 'charges.create') . protected('/wait', 'wait', 'IdempotencyWait 5s')
    . protected('/short', 'short', 'IdempotencyWait 300ms') . protected('/lease', 'lease', 'IdempotencyLease 2s')
    . protected('/query', 'query', 'IdempotencyFingerprintQuery None'));
my $twin = $t->twin;
my $c = $t->both;
my $ten = '{"amount":10}';

subtest 'fresh' => sub {
    my $key = fresh_key();
    my $res;
    ran($t, 1, 'a fresh key', sub { $res = $c->post('/charges?status=201', key => $key, body => $ten) });
    is($res->status, 201, "the application's status");
    is($res->json->{sha256}, sha256($ten), "the application's body");
    like($res->operation, qr/\A[0-9a-f-]{36}\z/, 'names the operation');
    is($res->header('Idempotency-Contract'), 'http.idempotency.v1', 'names the contract');
    ok(!defined $res->header($_), "no $_") for qw(Idempotency-Replayed Idempotency-Outcome Cache-Control);
    my ($row, @more) = $t->records("idem_key = '$key'");
    is(@more, 0, 'one record');
    my %want = (scope_version => 'v1', tenant_id => 'localhost', principal_id => 'a', route => 'charges.create', api_revision => '1', ns => 'u:',
        contract => 'http.idempotency.v1', operation_id => $res->operation, status => 'SUCCEEDED', owner_generation => 1,
        effect_mode => 'external', response_code => 201);
    is($row->{$_}, $want{$_}, "record: $_") for sort keys %want;
    is($row->{response_body}, '\\x' . unpack('H*', $res->body), 'record: body');
    is(length $row->{fingerprint}, 2 + 64, 'record: SHA-256');
    my ($age) = $t->pg->query("SELECT extract(epoch FROM expires_at - settled_at)::int AS kept, tombstone_until FROM idempotency_records WHERE idem_key = '$key'");
    is($age->{kept}, 24 * 3600, 'kept for a day');
};

subtest 'C054 replay' => sub {
    my $key = fresh_key();
    my ($first, @again);
    ran($t, 1, 'retries', sub {
        $first = $c->post('/charges?status=201', key => $key, body => $ten);
        @again = map { $c->post('/charges?status=201', key => $key, body => $ten) } 1 .. 3;
    });
    is_replay($_, $first, 'a retry') for @again;
    my $access = join '', map { slurp($_->root . '/logs/access.log') } $t, $twin;
    like($access, qr/outcome=replayed operation=\Q@{[$first->operation]}\E/, 'the access log says so');
    like($access, qr/outcome=executed operation=\Q@{[$first->operation]}\E/, 'and which one ran');
};

subtest 'C034 another request under the key' => sub {
    my $key = fresh_key();
    my $first = $c->post('/charges', key => $key, body => '{"qty":1,"secret":"first-of-all"}');
    ran($t, 0, 'other body, query, path, type, method', sub {
        my @secrets = ('first-of-all', $first->json->{id}, $key);
        problem($c->post('/charges', key => $key, body => '{"qty":2}'), 'key-reused', secrets => \@secrets, operation => 1);
        problem($c->post('/charges?x=1', key => $key, body => '{"qty":1,"secret":"first-of-all"}'), 'key-reused');
        problem($c->post('/charges/5', key => $key, body => '{"qty":1,"secret":"first-of-all"}'), 'key-reused');
        problem($c->post('/charges', key => $key, type => 'text/plain', body => '{"qty":1,"secret":"first-of-all"}'), 'key-reused');
        problem($c->request(PATCH => '/charges', key => $key, body => '{"qty":1,"secret":"first-of-all"}'), 'key-reused');
        problem($c->post('/charges', key => $key, body => '{"qty":1,"secret":"first-of-all"}', headers => [ 'X-HTTP-Method-Override' => 'DELETE' ]), 'key-reused');
    });
    is_replay($c->post('/charges', key => $key, body => '{"qty":1,"secret":"first-of-all"}'), $first, 'the first stands');
};

subtest 'C028 the query' => sub {
    my $key = fresh_key();
    my $dry = $c->post('/charges?dry=1', key => $key, body => $ten);
    ran($t, 0, 'the real call after a dry run', sub { problem($c->post('/charges', key => $key, body => $ten), 'key-reused', secrets => [ $dry->json->{id} ]) });
    my $one = $c->post('/query?page=1', key => $key, body => $ten);
    is_replay($c->post('/query?page=2', key => $key, body => $ten), $one, 'left out by IdempotencyFingerprintQuery None');
};

subtest 'C035 headers that differ in an honest retry' => sub {
    my $key = fresh_key();
    my $try = 0;
    my $send = sub {
        $try++;
        $c->post('/charges', key => $key, body => $ten, headers => [ 'User-Agent' => "sdk/$try", 'traceparent' => "00-$try", 'X-Request-Id' => "r$try",
            'Date' => "Tue, 0$try Dec 2026 00:00:00 GMT", 'x-stainless-retry-count' => $try, 'Accept' => $try > 1 ? '*/*' : 'application/json' ]);
    };
    my $first = $send->();
    ran($t, 0, 'the retry', sub { is_replay($send->(), $first, 'other headers') });
};

subtest 'C113 in progress' => sub {
    my $key = fresh_key();
    $t->backend->behave(hold => 1);
    my $rows = $t->record_count;
    ran($t, 1, 'a retry while running', sub {
        my $effects = () = $t->backend->effects;
        my $started = time;
        my $running = $c->send(POST => '/charges', key => $key, body => $ten);
        ok(wait_for(sub { (() = $t->backend->effects) > $effects }), 'the application runs');
        my $early = $c->post('/charges', key => $key, body => $ten);
        problem($early, 'in-progress', operation => 1);
        is($early->header('Retry-After'), 1, 'come back after as long as it has run so far');
        problem($c->post('/charges', key => $key, body => '{"amount":11}'), 'key-reused');
        my ($row) = $t->records("idem_key = '$key'");
        is($row->{status}, 'EXECUTING', 'the record says so');
        is($row->{operation_id}, $early->operation, 'the operation is named');
        wait_for(sub { time > $started + 3.2 }, 5);
        my $late = $c->post('/charges', key => $key, body => $ten);
        problem($late, 'in-progress');
        cmp_ok($late->header('Retry-After'), '>=', 3, 'later when it has run longer');
        cmp_ok($late->header('Retry-After'), '<=', 5, 'but no longer than that');
        $t->backend->release;
        my $first = $running->response;
        is($first->status, 200, 'the first is answered');
        is_replay($c->post('/charges', key => $key, body => $ten), $first, 'then the retry');
    });
    $t->backend->behave;
};

subtest 'Retry-After is not beyond the lease' => sub {
    my $key = fresh_key();
    $t->backend->behave(hold => 1);
    my $effects = () = $t->backend->effects;
    my $started = time;
    my $running = $c->send(POST => '/lease', key => $key, body => $ten);
    ok(wait_for(sub { (() = $t->backend->effects) > $effects }), 'the application runs');
    wait_for(sub { time > $started + 3.5 }, 5);
    my $late = $c->post('/lease', key => $key, body => $ten);
    problem($late, 'in-progress');
    cmp_ok($late->header('Retry-After'), '<=', 2, 'within a lease of 2 s');
    $t->backend->release;
    is($running->response->status, 200, 'a living owner keeps its record beyond the lease');
    $t->backend->behave;
};

subtest 'waiting' => sub {
    my $key = fresh_key();
    $t->backend->behave(hold => 1);
    ran($t, 1, 'waiters', sub {
        my $effects = () = $t->backend->effects;
        my $running = $c->send(POST => '/wait', key => $key, body => $ten);
        ok(wait_for(sub { (() = $t->backend->effects) > $effects }), 'the application runs');
        my @waiting = map { $c->send(POST => '/wait', key => $key, body => $ten) } 1 .. 3;
        ok($waiting[0]->silent(0.3), 'a waiter is not answered yet');
        $t->backend->release;
        my $first = $running->response;
        is_replay($_->response, $first, 'a waiter') for @waiting;
    });
    $t->backend->behave(hold => 1);
    my $effects = () = $t->backend->effects;
    my $running = $c->send(POST => '/short', key => $key, body => $ten);
    ok(wait_for(sub { (() = $t->backend->effects) > $effects }), 'the application runs');
    my $before = time;
    problem($c->post('/short', key => $key, body => $ten), 'in-progress');
    cmp_ok(time - $before, '>=', 0.3, 'not before the wait is over');
    cmp_ok(time - $before, '<', 2, 'and not long after');
    $t->backend->release;
    is($running->response->status, 200, 'the first is answered');
    $t->backend->behave;
};

$t->finish;
