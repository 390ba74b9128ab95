# The wire fails between a statement and its answer. Nothing runs whose reserve is in doubt; what the store did or did
# not do is found out by owner token, operation and generation, and put right by itself. A second server, whose wire is
# whole, is asked for the same meanwhile.
use strict;
use warnings;
use Idem::Test;
use Idem::Wire;
use Time::HiRes qw(time);

my $t = Idem::Test->new(start => 0, mpm_config => "ServerLimit 1\nStartServers 1\nThreadsPerChild 16\nMaxRequestWorkers 16\nMinSpareThreads 1\nMaxSpareThreads 16\n",
    config => "IdempotencyStoreTimeout 1s\n" . protected('/charges', 'charges.create')
        . protected('/again', 'again', 'IdempotencyReuse Allow', 'IdempotencyRetention 100ms', 'IdempotencyTombstone 100ms')
        . protected('/over', 'over', 'IdempotencyEffect repeatable'));
my $wire = Idem::Wire->new($t->pg);
$t->httpd->{pg} = $wire;
$t->httpd->start;
my $twin = $t->twin(httpd => { pg => $t->pg });
$twin->httpd->start;
my ($c, $other) = map { $_->client->with(authority => 'shop.example') } $t, $twin;
my $body = '{"amount":10}';

sub count { return $t->record_count("idem_key = '$_[0]'") }

# One request, answered within the deadline of its few calls.
sub post {
    my ($key, $path) = @_;
    my $before = time;
    my $res = $c->post($path // '/charges', key => $key, body => $body);
    cmp_ok(time - $before, '<', 3, 'answered in time');
    return $res;
}

# The store has forgotten an attempt, and the key works as if nothing had been.
sub as_if_nothing_had_been {
    my ($key, $name) = @_;
    ok(wait_for(sub { !count($key) }, 15), "$name: the row is withdrawn");
    runs_once($key, $name);
}

sub runs_once {
    my ($key, $name) = @_;
    ran($t, 1, $name, sub {
        my $first = post($key);
        is($first->status, 200, "$name: runs") or diag($first->body);
        is_replay($_->post('/charges', key => $key, body => $body), $first, $name) for $c, $other;
    });
    is(count($key), 1, "$name: one record");
}

is(post(fresh_key())->status, 200, 'the wire is a wire');

for my $what (qw(answer half lose)) {
    subtest "reserve: $what, once" => sub {
        my $key = fresh_key();
        $wire->on(idem_reserve => $what);
        my $hits = $wire->hits;
        runs_once($key, 'sent again and recognised');
        is($wire->hits, $hits + 1, 'it did fail');
    };
    subtest "reserve: $what, and again" => sub {
        my $key = fresh_key();
        my $hits = $wire->hits;
        ran($t, 0, 'in doubt', sub {
            $wire->on(idem_reserve => $what, times => 2);
            problem(post($key), 'store-unavailable');
        });
        is($wire->hits, $hits + 2, 'it did fail twice');
        as_if_nothing_had_been($key, $what);
    };
}

subtest 'reserve: done, and no answer at all' => sub {
    my $key = fresh_key();
    $wire->on(idem_reserve => 'silent');
    my $running = $c->send(POST => '/charges', key => $key, body => $body);
    ok(wait_for(sub { count($key) }, 5), 'it is done');
    ran($t, 0, 'in doubt', sub {
        # by its owner token it is somebody's whom nobody has seen end
        problem($other->post('/charges', key => $key, body => $body), 'in-progress');
        problem($running->response, 'store-unavailable');
    });
    as_if_nothing_had_been($key, 'silent');
    $wire->release;
};

subtest 'reserve: reaches the server later, after the client came again' => sub {
    my $key = fresh_key();
    $wire->on(idem_reserve => 'hold');
    ran($t, 0, 'in doubt', sub { problem(post($key), 'store-unavailable') });
    my $first;
    ran($t, 1, 'meanwhile', sub { $first = $other->post('/charges', key => $key, body => $body); is($first->status, 200, 'the other server runs it') });
    $wire->release;
    ok(wait_for(sub { $t->pg->value("SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND usename = 'web'") == 0 }, 5), 'it came');
    ran($t, 0, 'afterwards', sub { is_replay(post($key), $first, 'the record is the one that ran') });
    is(count($key), 1, 'one record');
};

subtest 'reserve: reaches the server later, and nobody came' => sub {
    my $key = fresh_key();
    $wire->on(idem_reserve => 'hold');
    ran($t, 0, 'in doubt', sub { problem(post($key), 'store-unavailable') });
    is(count($key), 0, 'not there yet');
    my $events = "SELECT count(*) FROM idempotency_events WHERE reason LIKE 'withdrawn%'";
    my $before = $t->pg->value($events);
    $wire->release;
    ok(wait_for(sub { $t->pg->value($events) > $before }, 20), 'it came, and was withdrawn');
    as_if_nothing_had_been($key, 'late');
};

subtest 'reuse of an expired key: no answer' => sub {
    my $key = fresh_key();
    ran($t, 1, 'first', sub { is(post($key, '/again')->status, 200, 'runs') });
    my $over = sub { $t->record_count("idem_key = '$key' AND tombstone_until < now()") };
    ok(wait_for($over, 5), 'its tombstone is over');
    ran($t, 0, 'in doubt', sub {
        $wire->on('key used again' => 'silent');
        problem(post($key, '/again'), 'store-unavailable');
    });
    ok(wait_for(sub { !$t->record_count("idem_key = '$key' AND status = 'EXECUTING' AND owner IS NOT NULL") }, 10), 'withdrawn');
    my $res = post($key, '/again');
    is($res->status, 200, 'the key works on');
    $wire->release;
};

# A record that the next request takes over: its first owner has given it back.
sub given_back {
    my $key = fresh_key();
    $t->backend->behave(status => 500);
    ran($t, 1, 'first', sub { post($key, '/over') });
    $t->backend->behave;
    is(generation($key), '1 ', 'given back');
    return $key;
}

# Generation and owner of the record; the owner's children are asked about by the registry alone.
sub generation { return $t->pg->value("SELECT owner_generation || ' ' || coalesce(owner::text, '') FROM idempotency_records WHERE idem_key = '$_[0]'") }

sub taken_over_once {
    my ($key, $client, $want, $name) = @_;
    ran($t, 1, $name, sub {
        my $res;
        ok(wait_for(sub { $res = $client->post('/over', key => $key, body => $body); $res->status == 200 }, 10), "$name: runs") or diag($res->body);
        is($res->json->{env}{IDEMPOTENCY_GENERATION}, $want, "$name: generation $want");
        is_replay($_->post('/over', key => $key, body => $body), $res, $name) for $c, $other;
    });
}

for my $what (qw(answer half lose)) {
    subtest "takeover: $what, once" => sub {
        my $key = given_back();
        $wire->on('taken over' => $what);
        my $hits = $wire->hits;
        taken_over_once($key, $c, 2, 'sent again, and recognised where it was done');
        is($wire->hits, $hits + 1, 'it did fail');
    };
    subtest "takeover: $what, and again" => sub {
        my $key = given_back();
        my $hits = $wire->hits;
        ran($t, 0, 'in doubt', sub {
            $wire->on('taken over' => $what, times => 2);
            problem(post($key, '/over'), 'store-unavailable');
        });
        is($wire->hits, $hits + 2, 'it did fail twice');
        ok(wait_for(sub { generation($key) =~ / \z/ }, 15), 'nobody has it: not done, or withdrawn');
        my ($generation) = split / /, generation($key);
        is($generation, $what eq 'lose' ? 1 : 2, 'and what was done is counted');
        taken_over_once($key, $other, $generation + 1, 'the next one');
    };
}

subtest 'takeover: done, and no answer at all' => sub {
    my $key = given_back();
    $wire->on('taken over' => 'silent');
    ran($t, 0, 'in doubt', sub { problem(post($key, '/over'), 'store-unavailable') });
    ok(wait_for(sub { generation($key) eq '2 ' }, 15), 'withdrawn');
    taken_over_once($key, $other, 3, 'the next one');
    $wire->release;
};

subtest 'takeover: reaches the server later, after another server has taken over' => sub {
    my $key = given_back();
    $wire->on('taken over' => 'hold');
    ran($t, 0, 'in doubt', sub { problem(post($key, '/over'), 'store-unavailable') });
    taken_over_once($key, $other, 2, 'meanwhile');
    my $row = ($t->records("idem_key = '$key'"))[0];
    $wire->release;
    ok(wait_for(sub { $t->pg->value("SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND usename = 'web'") == 0 }, 5), 'it came');
    is_deeply(($t->records("idem_key = '$key'"))[0], $row, 'and has changed nothing');
};

subtest 'takeover: reaches the server later, and nobody came' => sub {
    my $key = given_back();
    $wire->on('taken over' => 'hold');
    ran($t, 0, 'in doubt', sub { problem(post($key, '/over'), 'store-unavailable') });
    is(generation($key), '1 ', 'not there yet');
    $wire->release;
    ok(wait_for(sub { generation($key) eq '2 ' }, 20), 'it came, and was withdrawn');
    taken_over_once($key, $c, 3, 'the next one');
};

for my $what (qw(answer half lose)) {
    subtest "settlement: $what" => sub {
        my $key = fresh_key();
        $wire->on(idem_settle => $what);
        my $hits = $wire->hits;
        runs_once($key, 'settled by another sending');
        is($wire->hits, $hits + 1, 'it did fail');
        is($t->pg->value("SELECT status FROM idempotency_records WHERE idem_key = '$key'"), 'SUCCEEDED', 'SUCCEEDED');
    };
}

subtest 'settlement: no answer at all' => sub {
    my $key = fresh_key();
    $wire->on(idem_settle => 'silent');
    ran($t, 1, 'the answer is the true one', sub {
        my $first = post($key);
        is($first->status, 200, 'it went out');
        is_replay(post($key), $first, 'and is replayed');
    });
    $wire->release;
};

subtest 'the store goes away while the backend runs' => sub {
    my $key = fresh_key();
    $t->backend->behave(hold => 1);
    ran($t, 1, 'the answer is the true one', sub {
        my $running = $c->send(POST => '/charges', key => $key, body => $body);
        ok(wait_for(sub { count($key) }, 10), 'it runs');
        $wire->mode('closed');
        $t->backend->release;
        is($running->response->status, 200, 'it went out');
        $wire->mode('pass');
        $t->backend->behave;
        my $res;
        ok(wait_for(sub { $res = post($key); $res->status != 503 }, 10), 'the store is back');
        ok($res->replayed || $res->status == 409, 'a retry is told so, and does not run') or diag($res->status);
    });
};

unlike($_->httpd->log, qr/exit signal/, 'no child has crashed') for $t, $twin;
$t->httpd->expect_log(qr/IDEM1003.*idem_reserve had no answer/, qr/IDEM1003.*idem_settle had no answer/, qr/IDEM0806/);
$t->httpd->allow_log(qr/IDEM0902|IDEM0904|IDEM1003|dbd:/);
$t->finish;
