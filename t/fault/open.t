# IdempotencyStoreFailure: Closed and Open, by virtual host; and one registry for several hosts (IdempotencyStore).
use strict;
use warnings;
use Idem::Test;
use Idem::Wire;

my $wire;
my $t = Idem::Test->new(start => 0, mpm_config => "ServerLimit 1\nStartServers 1\nThreadsPerChild 16\nMaxRequestWorkers 16\nMinSpareThreads 1\nMaxSpareThreads 16\n",
    httpd => { dbd => "# the registry's own host has them\n" });
$wire = Idem::Wire->new($t->pg);
my $route = protected('/charges', 'charges.create');
my $host = sub { my ($name, @more) = @_; return join "\n", "<VirtualHost 127.0.0.1:\@PORT\@>", "ServerName $name", "IdempotencyStore registry.example", @more, $route, '</VirtualHost>' };
$t->httpd->{config} = $t->expand(join "\n", "IdempotencyStoreTimeout 1s\nIdempotencyStoreWriters 1", $host->('closed.example'), $host->('open.example', 'IdempotencyStoreFailure Open'),
    "<VirtualHost 127.0.0.1:1>\nServerName registry.example\n" . $t->httpd->dbd_text($wire, 'web') . "</VirtualHost>\n");
$t->httpd->start;
my ($closed, $open) = map { $t->client->with(authority => $_) } qw(closed.example open.example);
my $body = '{"amount":10}';

subtest 'IdempotencyStore: two hosts, one registry' => sub {
    my $key = fresh_key();
    ran($t, 2, 'a tenant each', sub {
        for my $c ($closed, $open) {
            my $first = $c->post('/charges', key => $key, body => $body);
            is($first->status, 200, 'runs');
            is_replay($c->post('/charges', key => $key, body => $body), $first, 'again');
        }
    });
    is_deeply([ map { $_->{tenant_id} } $t->pg->query("SELECT tenant_id FROM idempotency_records WHERE idem_key = '$key' ORDER BY 1") ],
        [qw(closed.example open.example)], 'one record each');
    is($t->pg->value('SELECT count(*) FROM idempotency_owners'), 1, 'one owner, as there is one child and one registry');
};

subtest 'the registry is away' => sub {
    my ($key, $known) = (fresh_key(), fresh_key());
    is($open->post('/charges', key => $known, body => $body)->status, 200, 'runs while it is there');
    $wire->mode('closed');
    ran($t, 0, 'Closed', sub { problem($closed->post('/charges', key => $key, body => $body), 'store-unavailable') });
    ran($t, 2, 'Open', sub {
        for (1 .. 2) {
            my $res = $open->post('/charges', key => $key, body => $body);
            is($res->status, 200, 'runs');
            is_deeply([ grep { /^Idempotency-/i } map { $_->[0] } @{ $res->{fields} } ], [], 'and the module says nothing in the response');
            is($res->json->{length}, length $body, 'with its body');
            ok(!grep({ /IDEMPOTENCY_OPERATION_ID/ } keys %{ $res->json->{env} }), 'without an operation');
        }
    });
    is(scalar(() = slurp($t->root . '/logs/access.log') =~ /outcome=unprotected/g), 2, 'the access log says so');
    $wire->mode('pass');
    ok(wait_for(sub { $closed->post('/charges', key => $key, body => $body)->status == 200 }, 10), 'it is back');
    is($t->record_count("idem_key = '$key' AND tenant_id = 'open.example'"), 0, 'what ran unprotected left no record');
    is($open->post('/charges', key => $known, body => $body)->header('Idempotency-Replayed'), 'true', 'protected again');
};

subtest 'a reserve in doubt is never run, Open or not' => sub {
    for my $what (qw(silent hold)) {
        my $key = fresh_key();
        $wire->on(idem_reserve => $what);
        ran($t, 0, $what, sub { problem($open->post('/charges', key => $key, body => $body), 'store-unavailable') });
        $wire->release;
        ok(wait_for(sub { !$t->record_count("idem_key = '$key'") }, 10), 'withdrawn');
    }
    for my $what (qw(answer lose)) {
        my $key = fresh_key();
        $wire->on(idem_reserve => $what, times => 2);
        ran($t, 0, $what, sub { problem($open->post('/charges', key => $key, body => $body), 'store-unavailable') });
    }
};

subtest 'many reserves in one statement, and all in doubt' => sub {
    my @keys = map { fresh_key() } 1 .. 8;
    my $hits = $wire->hits;
    # one writer is kept, so that the others wait for company
    $wire->on(idem_reserve => 'hold');
    $wire->on(idem_insert_many => 'silent');
    my %status;
    my $count = executed($t, sub {
        my $first = $open->send(POST => '/charges', key => fresh_key(), body => $body);
        ok(wait_for(sub { $wire->hits == $hits + 1 }, 5), 'one is on its way');
        my @others = map { $open->send(POST => '/charges', key => $_, body => $body) } @keys;
        ok($others[-1]->silent(0.2), 'the others wait');
        $wire->release;
        is($first->response->status, 200, 'it runs');
        $status{ $_->response->status }++ for @others;
    });
    is($wire->hits, $hits + 2, 'they were sent together');
    cmp_ok($status{503} // 0, '>=', 2, 'and are refused, Open or not') or diag(explain(\%status));
    is($count, 1 + ($status{200} // 0), 'none of them runs');
    $wire->release;
    ok(wait_for(sub { $t->record_count("status = 'EXECUTING'") == 0 }, 10), 'all are withdrawn');
    ran($t, 8 - ($status{200} // 0), 'afterwards', sub { is((grep { $open->post('/charges', key => $_, body => $body)->status != 200 } @keys), 0, 'they run') });
};

$t->httpd->expect_log(qr/IDEM1204.*IdempotencyStoreFailure Open/, qr/IDEM0403.*without protection/);
$t->httpd->allow_log(qr/dbd:|IDEM0902|IDEM0904|IDEM1003/);
$t->finish;
