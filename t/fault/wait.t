# IdempotencyWait: a repeated request waits for the first one's answer, bounded in time and in number, whichever of two
# servers has the first. C060.
use strict;
use warnings;
use Idem::Test;
use Time::HiRes qw(time);

my $t = Idem::Test->new(mpm_config => "ServerLimit 1\nStartServers 1\nThreadsPerChild 25\nThreadLimit 25\nMaxRequestWorkers 25\nMinSpareThreads 1\nMaxSpareThreads 25\n",
    config => protected('/wait', 'wait', 'IdempotencyWait 8s') . protected('/short', 'short', 'IdempotencyWait 600ms')
        . protected('/at-once', 'at-once') . protected('/rejects', 'rejects', 'IdempotencyWait 8s', 'IdempotencyOutcome 409 rejected')
        . qq(Alias "/health" "\@ROOT\@/htdocs/health"\n));
my $twin = $t->twin;
spew($_->root . '/htdocs/health', 'well', 0644) for $t, $twin;
my $c = $t->both;
my $body = '{"amount":10}';

# A request that is at work until the backend is released; its connection.
sub begin {
    my ($place, $key, %behave) = @_;
    my $before = () = $t->backend->effects;
    $t->backend->behave(hold => 1, %behave);
    my $running = $c->send(POST => $place, key => $key, body => $body);
    ok(wait_for(sub { (() = $t->backend->effects) > $before }), "$place: the first one runs");
    return $running;
}

# Looks at the store by waiting requests show in PostgreSQL: idle connections of the role, none in a transaction.
sub borrowed { return $t->pg->value("SELECT count(*) FROM pg_stat_activity WHERE usename = 'web' AND state <> 'idle'") }

subtest 'waits and replays' => sub {
    my $key = fresh_key();
    ran($t, 1, 'the first and one more', sub {
        my $running = begin('/wait', $key);
        my $waiting = $c->send(POST => '/wait', key => $key, body => $body);
        ok($waiting->silent(0.7), 'the second is not answered while the first runs');
        # it asks now and then, and heartbeats are sent meanwhile: what is held would be held at every look
        ok(wait_for(sub { borrowed() == 0 }, 5), 'and holds no connection to the registry');
        $t->backend->release;
        my $first = $running->response;
        is_replay($waiting->response, $first, 'then it gets the answer');
    });
    ran($t, 0, 'a changed request', sub {
        problem($c->post('/wait', key => $key, body => '{"amount":11}'), 'key-reused');
    });
};

subtest 'no longer than it may' => sub {
    my $key = fresh_key();
    my $running = begin('/short', $key);
    my $begun = time;
    problem($c->post('/short', key => $key, body => $body), 'in-progress');
    my $took = time - $begun;
    cmp_ok($took, '>=', 0.6, 'after the time that was said');
    cmp_ok($took, '<', 3, 'and not much later') or diag($took);
    $t->backend->release;
    is($running->response->status, 200, 'the first comes to its end');
};

subtest 'not at all by default' => sub {
    my $key = fresh_key();
    my $running = begin('/at-once', $key);
    my $begun = time;
    problem($c->post('/at-once', key => $key, body => $body), 'in-progress');
    cmp_ok(time - $begun, '<', 2, 'at once');
    $t->backend->release;
    $running->response;
};

subtest 'the first did nothing' => sub {
    my $key = fresh_key();
    my $running = begin('/rejects', $key, status => 409);
    my $waiting = $c->send(POST => '/rejects', key => $key, body => $body);
    ok($waiting->silent(0.4), 'the second waits');
    ran($t, 1, 'the second', sub {
        $t->backend->release;
        is($running->response->status, 409, 'the first is rejected');
        my $res = $waiting->response;
        is($res->status, 409, 'the second has run');
        isnt($res->json->{id}, undef, 'by itself') or diag($res->body);
    });
};

subtest 'C060 sixty at once on 25 threads of each server' => sub {
    my $key = fresh_key();
    ran($t, 1, 'all of them', sub {
        my $running = begin('/wait', $key);
        my @more = map { $c->send(POST => '/wait', key => $key, body => $body) } 1 .. 60;
        my @told;
        ok(wait_for(sub { @told = grep { !$_->silent(0) } @more; @told >= 48 }, 10), 'those who may not wait are told at once') or diag(scalar @told);
        my $begun = time;
        is($c->with(user => undef)->get('/health')->body, 'well', 'others are served');
        cmp_ok(time - $begun, '<', 1, 'within a second');
        is(scalar @told, 48, 'a quarter of the threads wait, of each');
        $t->backend->release;
        my $first = $running->response;
        my @res = map { $_->response } @more;
        is((grep { $_->status == 200 && $_->body eq $first->body && $_->replayed } @res), 12, 'they get the first answer');
        # more come than a child has threads: who meets a registry that was silent for a moment gets 503
        is((grep { $_->status =~ /^(?:409|503)$/ && $_->header('Retry-After') } @res), 48, 'the others may come again');
    });
};

subtest 'the client goes' => sub {
    my $key = fresh_key();
    # the places are those of one child
    my $c = $t->client->with(authority => 'shop.example');
    my $running = begin('/wait', $key);
    my @gone = map { $c->send(POST => '/wait', key => $key, body => $body) } 1 .. 6;
    ok(wait_for(sub { $c->post('/wait', key => $key, body => $body)->status == 409 }, 5), 'six wait, and no more');
    $_->abort for @gone;
    my $waiting;
    ok(wait_for(sub { $waiting = $c->send(POST => '/wait', key => $key, body => $body); $waiting->silent(0.3) }, 5), 'their places are free again');
    $t->backend->release;
    is($running->response->status, 200, 'the first comes to its end');
    is($waiting->response->status, 200, 'who waits gets it');
};

subtest 'a wrong value' => sub {
    my ($status, $said) = $t->httpd->configtest("IdempotencyWait 6m\n");
    isnt($status, 0, 'refused');
    like($said, qr/IdempotencyWait: .*5m/, 'with what it takes');
};

$t->finish;
