# IdempotencyQuota: a principal's operations are bounded, near enough, and retries are answered all the same. What a child
# knows at once is of its own operations, so those subtests have one; another server's are seen after an interval.
use strict;
use warnings;
use Idem::Test;

my $one = "ServerLimit 1\nStartServers 1\nThreadsPerChild 25\nMaxRequestWorkers 25\nMinSpareThreads 1\nMaxSpareThreads 25\n";
my $t = Idem::Test->new(mpm_config => $one, config => join '', protected('/live', 'live', 'IdempotencyQuota live=100'),
    protected('/other', 'other', 'IdempotencyQuota live=100'), protected('/flight', 'flight', 'IdempotencyQuota inflight=3'), protected('/free', 'free'));
my $c = $t->client;
my $b = $c->with(user => 'b');
my $body = '{"amount":10}';

subtest 'C092 fresh keys without end' => sub {
    my (@first, $refused);
    for my $n (1 .. 110) {
        my $response = $c->post('/live', key => "live-$n", body => $body);
        $response->status == 200 ? push @first, $response : ($refused //= $response);
    }
    cmp_ok(scalar @first, '<=', 100, 'no more than the quota');
    cmp_ok(scalar @first, '>=', 95, 'and hardly fewer');
    problem($refused, 'quota-exceeded');
    is($t->record_count("principal_id = 'a'"), scalar @first, 'what was refused left nothing');
    is($b->post('/live', key => 'live-1', body => $body)->status, 200, 'somebody else is not meant');
    ran($t, 0, 'over the quota', sub {
        is_replay($c->post('/live', key => 'live-1', body => $body), $first[0], 'a retry');
        problem($c->post('/live', key => 'live-1', body => '{"amount":11}'), 'key-reused');
        problem($c->post('/other', key => 'fresh', body => $body), 'quota-exceeded');
    });
    is($c->post('/free', key => 'fresh', body => $body)->status, 200, 'a route without quota');
    $t->pg->do("UPDATE idempotency_records SET expires_at = now() - interval '1 s' WHERE principal_id = 'a' AND idem_key NOT IN ('live-1', 'live-2')");
    ok(wait_for(sub { $c->post('/live', key => 'again', body => $body)->status == 200 }, 10), 'when their retention is over there is room, within an interval');
};

subtest 'operations at the same time' => sub {
    $t->backend->behave(hold => 1);
    my $before = () = $t->backend->effects;
    my @running = map { $c->send(POST => '/flight', key => "flight-$_", body => $body) } 1 .. 3;
    wait_for(sub { (() = $t->backend->effects) == $before + 3 }) or die "they do not run\n";
    ran($t, 0, 'a fourth', sub { problem($c->post('/flight', key => 'flight-4', body => $body), 'quota-exceeded') });
    ran($t, 0, 'a retry of the first', sub { problem($c->post('/flight', key => 'flight-1', body => $body), 'in-progress') });
    $before = () = $t->backend->effects;
    push @running, $b->send(POST => '/flight', key => 'flight-4', body => $body);
    ok(wait_for(sub { (() = $t->backend->effects) > $before }), 'somebody else is not meant');
    $t->backend->release;
    $_->response for @running;
    $t->backend->behave;
    is($c->post('/flight', key => 'flight-4', body => $body)->status, 200, 'when they have ended, at once');
};

subtest 'operations of another server' => sub {
    my $other = Idem::Test->new(pg => $t->pg, mpm_config => $one, config => protected('/flight', 'flight', 'IdempotencyQuota inflight=3 live=1000'));
    my $here = $other->client;
    $t->backend->behave(hold => 1);
    my $before = () = $t->backend->effects;
    my @running = map { $c->send(POST => '/flight', key => "far-$_", body => $body) } 1 .. 3;
    wait_for(sub { (() = $t->backend->effects) == $before + 3 }) or die "they do not run\n";
    my ($runs, $response) = (0);
    ok(wait_for(sub { $response = $here->post('/flight', key => fresh_key(), body => $body); $runs++ if $response->status == 200; $response->status == 429 }, 10), 'are seen after an interval');
    note("$runs ran until then");
    $t->backend->release;
    $_->response for @running;
    $t->backend->behave;
    ok(wait_for(sub { $here->post('/flight', key => fresh_key(), body => $body)->status == 200 }, 10), 'and so is their end');
    $other->finish(more => 1);
};

subtest 'what configtest refuses' => sub {
    for my $bad ('', 'live=0', 'live=x', 'live=1 inflight=2 live=3', 'many=5', 'live=1000001', 'None live=1') {
        my ($status, $said) = $t->httpd->configtest($t->expand(protected('/x', 'x', "IdempotencyQuota $bad")));
        isnt($status, 0, "IdempotencyQuota $bad");
        like($said, qr/IdempotencyQuota: takes live=N/, 'says what it takes');
    }
    my ($status) = $t->httpd->configtest($t->expand(protected('/x', 'x', 'IdempotencyQuota None')));
    is($status, 0, 'None is taken');
};

$t->finish;
