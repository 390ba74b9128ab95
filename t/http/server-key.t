# Keys that the server makes: a namespace that no client's key can reach.
use strict;
use warnings;
use Idem::Test;

# Somebody else's module, which calls the optional function.
my $mint = eval { build_module('mint') };
ok($mint, 'mod_idempotency.h is all that another module needs') or BAIL_OUT($@);

my $t = Idem::Test->new(config => sub {
    return join '', "LoadModule mint_module $mint\n",
        protected('/events', 'events.replay'),
        protected('/internal', 'events.replay', 'IdempotencyServerKey "replay:%{req:X-Event-Id}"', 'IdempotencyFingerprintHost Off', 'IdempotencyKeyLength 20 40', 'IdempotencyKeyPattern "^[0-9]+$"'),
        protected('/maybe', 'events.replay', 'IdempotencyServerKey "%{req:X-Event-Id}"'),
        protected('/optional', 'auto');
});
my $c = $t->client;
my $body = '{"event":1}';

sub event { my ($id, %arg) = @_; return $c->post('/internal', body => $body, headers => [ 'X-Event-Id' => $id ], %arg) }

subtest 'IdempotencyServerKey' => sub {
    my ($first, $client);
    ran($t, 1, 'one event', sub { $first = event('evt_1'); is_replay(event('evt_1'), $first, 'again') });
    my ($record) = $t->records("ns = 's:'");
    is_deeply([ @$record{qw(ns idem_key principal_id)} ], [ 's:', 'replay:evt_1', 'a' ], 'the record');
    ran($t, 1, 'another event', sub { is(event('evt_2')->status, 200, 'runs') });
    problem($c->post('/internal', body => '{"event":2}', headers => [ 'X-Event-Id' => 'evt_1' ]), 'key-reused');
    ran($t, 1, 'a client with that very key', sub {
        $client = $c->post('/events', key => 'replay:evt_1', body => $body);
        is($client->status, 200, 'runs');
        isnt($client->operation, $first->operation, 'and meets nothing of the server');
    });
    is_replay(event('evt_1'), $first, 'the server\'s own, after that');
    is_replay($c->post('/events', key => 'replay:evt_1', body => $body), $client, 'the client\'s own, after that');
    is($t->record_count("idem_key = 'replay:evt_1'"), 2, 'two records');
};

subtest 'not both' => sub {
    my $rows = $t->record_count;
    ran($t, 0, 'a client\'s key beside the server\'s', sub {
        problem(event('evt_9', key => '12345678901234567890'), 'key-malformed');
        problem(event('evt_1', key => 'replay:evt_1'), 'key-malformed');
        problem(event('evt_9', headers => [ 'X-Event-Id' => 'evt_9', 'Idempotency-Key' => '' ]), 'key-malformed');
    });
    is($t->record_count, $rows, 'nothing is stored');
};

subtest 'an expression that gives nothing, or nothing usable' => sub {
    problem($c->post('/maybe', body => $body), 'key-missing');
    my $first = $c->post('/maybe', key => 'mine', body => $body);
    is_replay($c->post('/maybe', key => 'mine', body => $body), $first, 'then the client\'s key counts');
    is(($t->records("idem_key = 'mine'"))[0]{ns}, 'u:', 'as a client\'s');
    for my $bad ('e' x 256, "a\tb", "caf\xe9") {
        ran($t, 0, 'a bad key', sub { problem($c->post('/maybe', body => $body, headers => [ 'X-Event-Id' => $bad ]), 'key-malformed') });
    }
    $t->httpd->expect_log(qr/IDEM0312: IdempotencyServerKey: the key is too long/, qr/IDEM0312: IdempotencyServerKey: the key .*control/, qr/IDEM0312: IdempotencyServerKey: the key .*UTF-8/);
};

sub mint { my ($key, $place, %arg) = @_; return $c->post($place // '/events', body => $body, headers => [ 'X-Mint' => $key, 'X-Mint-In' => 'access' ], %arg) }

subtest 'idempotency_server_key()' => sub {
    my $first;
    ran($t, 1, 'one key', sub { $first = mint('minted'); is_replay(mint('minted'), $first, 'again') });
    is($first->header('X-Minted'), 'yes', 'the function says so');
    is(($t->records("idem_key = 'minted'"))[0]{ns}, 's:', 'the server\'s namespace');
    ran($t, 1, 'a client with that key', sub { is($c->post('/events', key => 'minted', body => $body)->status, 200, 'runs') });
    problem(mint('minted', '/events', key => 'mine'), 'key-malformed');
    my $both = $c->post('/internal', body => $body, headers => [ 'X-Event-Id' => 'evt_5', 'X-Mint' => 'by-module', 'X-Mint-In' => 'access' ]);
    is($t->record_count("idem_key = 'by-module'"), 1, 'goes before the expression');
    my $optional = mint('minted', '/optional');
    is_replay(mint('minted', '/optional'), $optional, 'where a key is optional');
    ran($t, 0, 'a key that cannot be', sub { my $bad = mint('m' x 256); is($bad->header('X-Minted'), 'no', 'is refused by the function'); problem($bad, 'key-missing') });
    my $late = $c->post('/events', key => 'late', body => $body, headers => [ 'X-Mint' => 'late', 'X-Mint-In' => 'fixups' ]);
    is($late->header('X-Minted'), 'late', 'too late in fixups');
    is(($t->records("idem_key = 'late'"))[0]{ns}, 'u:', 'and of no effect');
};

# A server that makes no keys by itself watches nobody's body for a request without one.
subtest 'a key that comes after the body was read' => sub {
    $t->httpd->restart(config => $t->expand("LoadModule mint_module $mint\n" . protected('/events', 'events.replay') . protected('/optional', 'auto')));
    for my $place ('/events', '/optional') {
        ran($t, 0, "$place, of no announced length", sub { problem($c->post($place, chunks => [$body], headers => [ 'X-Mint' => fresh_key(), 'X-Mint-In' => 'access', 'X-Eat' => 1 ]), 'body-consumed') });
        ran($t, 1, "$place, not read", sub { is($c->post($place, chunks => [$body], headers => [ 'X-Mint' => fresh_key(), 'X-Mint-In' => 'access' ])->json->{length}, length $body, 'the body is whole') });
        ran($t, 1, "$place, empty", sub { is($c->post($place, chunks => [], headers => [ 'X-Mint' => fresh_key(), 'X-Mint-In' => 'access' ])->status, 200, 'runs') });
    }
    ran($t, 1, 'without a key', sub { is($c->post('/optional', chunks => [$body])->json->{length}, length $body, 'nothing is in the way') });
    $t->httpd->expect_log(qr/IDEM0302/);
};

subtest 'what configtest refuses' => sub {
    my ($status, $said) = $t->httpd->configtest($t->expand(protected('/x', 'x', 'IdempotencyServerKey "%{req:"')));
    isnt($status, 0, 'a broken expression');
    like($said, qr/IdempotencyServerKey: the expression cannot be parsed/, 'with the reason');
};

$t->finish;
