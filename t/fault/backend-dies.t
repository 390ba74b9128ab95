# The backend dies, or the registry does, or a transaction fails, while the child lives: what the first client sees,
# what a retry gets, at this server or at a second one, and how often the effect is there.
use strict;
use warnings;
use Idem::Orders;
use Idem::Test;

my $t = Idem::Test->new(start => 0, backends => [qw(cgi fpm)], modules => ['proxy_http']);
my $orders = Idem::Orders->new($t);
my $pg = $t->pg;
my $journal = $t->root . '/journal';
for my $dir ($journal, "$journal-2") {
    mkdir $dir;
    chmod 0700, $dir;
    give($dir);
}
my @modes = qw(external transactional bare forgets repeatable);
$t->httpd->{config} = $t->expand($orders->load . "IdempotencyStoreTimeout 1s\nIdempotencyJournal \"$journal\"\n"
    . join '', map { my $kind = $_; $orders->place("/$kind", $kind), map { $orders->place("/$_/$kind", $kind, { by => $_ }) } qw(proxy fpm) } @modes);
$t->httpd->start;
my $twin = $t->twin(config => $t->httpd->{config} =~ s/\Q$journal\E/$journal-2/r, httpd => { env => $t->httpd->{env} });
$twin->httpd->start;
my ($c, $both) = ($t->client->with(authority => 'shop.example'), $t->both);
my $body = '{"amount":10}';
my $tags = 0;

sub row { my ($key) = @_; return ($t->records("idem_key = '$key'"))[0] // {} }
sub post { my ($place, $key, @more) = @_; return $both->post($place, key => $key, body => $body, headers => \@more) }

sub at {
    my ($place, $key, $point, @more) = @_;
    my $tag = 'w' . ++$tags;
    my $running = $c->send(POST => $place, key => $key, body => $body, headers => [ 'X-Hold' => "$point $tag", @more ]);
    ok(wait_for(sub { $orders->reached($tag) }, 20), "$place, $point: it is at its point");
    return ($running, $tag);
}

# What the retry got: replay of 201, runs (201, new), or a problem's slug.
sub got {
    my ($res) = @_;
    return $res->replayed ? 'replay ' . $res->status : $res->status == 201 ? 'runs' : ($res->json->{type} // $res->status) =~ s/.*://r;
}
sub check {
    my ($name, $place, $key, $want, $effects) = @_;
    my $operation = row($key)->{operation_id};
    is(got(post($place, $key)), $want, "$name: the retry");
    is($orders->count($operation), $effects, "$name: effects") if defined $operation;
    return;
}

subtest 'its process is killed: a CGI script, a proxied server\'s, an FPM worker' => sub {
    my @cases = (
        # place            point         the retry               effects
        [ '/external',      'before',     'outcome-unknown',      0 ],
        [ '/external',      'after',      'outcome-unknown',      1 ],
        [ '/transactional', 'before',     'outcome-unknown',      0 ],
        [ '/transactional', 'committing', 'outcome-unknown',      0 ],
        [ '/transactional', 'after',      'replay 201',           1 ],
        [ '/bare',          'after',      'response-not-stored',  1 ],
        [ '/repeatable',    'before',     'outcome-unknown',      0 ],
        [ '/repeatable',    'after',      'outcome-unknown',      1 ],
    );
    my %told = ('' => 500, '/proxy' => 502, '/fpm' => 503);
    for my $by (sort keys %told) {
        for my $case (@cases) {
            my ($place, $point, $want, $effects) = @$case;
            my $key = fresh_key();
            my ($running, $tag) = at("$by$place", $key, $point);
            kill KILL => $orders->pid($tag);
            is($running->response->status, $told{$by}, "$by$place, $point: the first client is told");
            check("$by$place, $point", "$by$place", $key, $want, $effects);
        }
    }
    $t->httpd->expect_log(qr/End of script output before headers/, qr/AH01102/, qr/AH01067|AH01075/);
};

subtest 'the backend fails by itself' => sub {
    # It answers 500: in external nobody knows; in the others it is free, unless it has settled.
    my %want = (external => [ 'outcome-unknown', 1 ], transactional => [ 'replay 201', 1 ], forgets => [ 'runs', 2 ], repeatable => [ 'runs', 2 ]);
    for my $mode (sort keys %want) {
        my $key = fresh_key();
        is(post("/$mode", $key, 'X-Answer' => 500)->status, 500, "$mode: the first client sees it");
        check($mode, "/$mode", $key, @{ $want{$mode} });
    }
};

subtest 'a transactional backend that does not settle' => sub {
    my $key = fresh_key();
    is(post('/forgets', $key)->status, 201, 'its answer goes out');
    my $operation = row($key)->{operation_id};
    problem(post('/forgets', $key), 'outcome-unknown');
    like($t->httpd->log . $twin->httpd->log, qr/IDEM0808: operation $operation/, 'the log says whose fault it is');
    # and settles later
    $pg->do("SELECT idempotency_settle('$operation', 1, 'succeeded')");
    is(got(post('/forgets', $key)), 'response-not-stored', 'settled late: its answer was given already, and is not to be had');
    $key = fresh_key();
    is(post('/forgets', $key, 'X-Answer' => 422)->status, 422, '422 without a settlement');
    is(got(post('/forgets', $key)), 'replay 422', 'is final');
    $t->httpd->expect_log(qr/IDEM0808/);
};

subtest 'two transactions lock each other out' => sub {
    my @keys = map { fresh_key() } 1, 2;
    my ($one, $tag1) = at('/transactional', $keys[0], 'locked', 'X-Lock' => '1 2');
    my ($two, $tag2) = at('/transactional', $keys[1], 'locked', 'X-Lock' => '2 1');
    $orders->go($tag1, $tag2);
    my @res = map { $_->response } $one, $two;
    is_deeply([ sort map { $_->status } @res ], [ 201, 500 ], 'one of them fails');
    for my $n (0, 1) {
        my $operation = $res[$n]->operation;
        is(got(post('/transactional', $keys[$n])), $res[$n]->status == 500 ? 'runs' : 'replay 201', 'the retry is true to that');
        is($orders->count($operation), 1, 'one effect');
        is($orders->outbox($operation), 1, 'one outbox row');
    }
};

# What befalls the registry, which is the backend's database too, while operations are at their points. What a client
# gets for `now` has to come while it lasts; `later` when it is over.
my @LOST = ( # what was not committed is
    # place             point         the client     the retry         effects
    [ '/external',      'before',     'now 500',     'outcome-unknown', 0 ],
    [ '/external',      'after',      'now 201',     'replay 201',      1 ],
    [ '/transactional', 'before',     'now 500',     'runs',            1 ],
    [ '/transactional', 'committing', 'now 500',     'runs',            1 ],
    [ '/transactional', 'after',      'now 201',     'replay 201',      1 ],
    [ '/bare',          'after',      'now 201',     'replay 201',      1 ],
    [ '/repeatable',    'before',     'now 500',     'runs',            1 ],
    [ '/repeatable',    'after',      'now 201',     'replay 201',      1 ],
);
my @LATE = map { my ($place, $point) = @$_; [ $place, $point, $point eq 'after' ? 'now 201' : 'later 201', 'replay 201', 1 ] } @LOST;
my @filling;
my $lock;
my @FAULTS = (
    [ 'stops and starts', \@LOST, sub { $pg->stop('immediate') }, sub { $pg->start } ],
    [ 'cuts every session', \@LOST, sub { $pg->do("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename IN ('web', 'shop')") }, sub { } ],
    [ 'is silent', \@LATE, sub { $pg->sigstop }, sub { $pg->cont } ],
    # all that the children may open wait for a lock
    [ 'has no connection left', [ map { [ @$_[ 0, 1 ], 'now 201', 'replay 201', 1 ] } @LOST ], sub {
        $lock = $pg->session;
        $lock->run('BEGIN; LOCK TABLE idempotency_control IN ACCESS EXCLUSIVE MODE');
        @filling = map { $c->send(POST => '/external', key => fresh_key(), body => $body) } 1 .. 24;
        ok(wait_for(sub { $pg->value("SELECT count(*) FROM pg_stat_activity WHERE usename = 'web' AND wait_event_type = 'Lock'") >= 4 }), 'they wait');
    }, sub { $lock->run('ROLLBACK'); $_->response for splice @filling } ],
);
for my $fault (@FAULTS) {
    my ($name, $table, $begin, $end) = @$fault;
    subtest "the registry $name" => sub {
        my @cases = map { my ($place, $point) = @$_; my $key = fresh_key(); [ @$_, $key, at($place, $key, $point) ] } @$table;
        $begin->();
        $orders->go(map { $_->[7] } @cases);
        for my $when ('now', 'later') {
            is($_->[6]->response->status, substr($_->[2], -3), "$_->[0], $_->[1]: the first client gets the true answer, $when") for grep { $_->[2] =~ /^$when/ } @cases;
            $end->() if $when eq 'now';
        }
        ok(wait_for(sub { !glob "$journal/*.settlement" }, 20), 'the journal is applied');
        ok(wait_for(sub { !grep { $_->status == 503 } $c->parallel(map { [ POST => '/external', key => fresh_key(), body => $body ] } 1 .. 8) }, 20), 'the registry is back');
        check("$_->[0], $_->[1]", @$_[ 0, 5, 3, 4 ]) for @cases;
        is($orders->outbox(row($_->[5])->{operation_id}), 1, "$_->[0], $_->[1]: one outbox row") for grep { $_->[0] eq '/transactional' } @cases;
    };
}
$t->httpd->expect_log(qr/IDEM0806/);

subtest 'somebody holds the record\'s lock for too long' => sub {
    my $key = fresh_key();
    my ($running, $tag) = at('/external', $key, 'after');
    my $holder = $pg->session;
    $holder->run("BEGIN; SELECT FROM idempotency_records WHERE idem_key = '$key' FOR UPDATE");
    $orders->go($tag);
    my $first = $running->response;
    is($first->status, 201, 'the true answer goes out in time');
    is(row($key)->{status}, 'EXECUTING', 'unsettled as yet');
    $holder->run('ROLLBACK');
    ok(wait_for(sub { row($key)->{status} eq 'SUCCEEDED' }, 20), 'it is settled from the journal');
    is_replay(post('/external', $key), $first, 'the retry');
};

subtest 'a hundred at once, one that differs, and the owner is killed' => sub {
    my $key = fresh_key();
    my ($running, $tag) = at('/external', $key, 'after');
    my $operation = row($key)->{operation_id};
    my @same = map { $both->send(POST => '/external', key => $key, body => $body) } 1 .. 99;
    my $different = $c->send(POST => '/external', key => $key, body => '{"amount":11}');
    my ($owner) = $pg->query("SELECT o.owner, o.pid FROM idempotency_owners o JOIN idempotency_records r USING (owner) WHERE r.idem_key = '$key'");
    ok(wait_for(sub { 20 < grep { !$_->silent(0) } @same }, 20), 'some are answered');
    kill KILL => $owner->{pid};
    my @res = map { eval { $_->response } } @same;
    my @answered = grep { defined } @res;
    is((grep { $_->status != 409 } @answered), 0, 'who got an answer was told the truth: in progress') or diag(join ' ', map { $_->status } @answered);
    my $other = eval { $different->response };
    ok(!$other || $other->status == 422, 'the other one: not the same request');
    is(eval { $running->response }, undef, 'the owner\'s client has lost its connection');
    ok(wait_for(sub { $t->httpd->children == 2 }, 20), 'there is a new child');
    $pg->do("UPDATE idempotency_owners SET seen_at = seen_at - interval '1 hour' WHERE owner = '$owner->{owner}'");
    is(got(post('/external', $key)), 'outcome-unknown', 'after the lease: unknown');
    my @again = $both->parallel(map { [ POST => '/external', key => $key, body => $body ] } 1 .. 10);
    is((grep { got($_) ne 'outcome-unknown' } @again), 0, 'for everybody');
    my ($status, $said) = $t->ctl('resolve', $operation, '--succeeded', '--reason', 'the order is there', '--code', 201);
    is($status, 0, 'resolved') or diag($said);
    is($orders->count($operation), 1, 'one effect');
    is($t->record_count("status IN ('RESERVED', 'EXECUTING')"), 0, 'no record is left at work');
    $orders->go($tag);
    $t->httpd->expect_log(qr/IDEM0401/);
    $t->httpd->allow_log(qr/exit signal Killed|AH00052|AH01265/);
};

$t->httpd->allow_log(qr/AH00898|IDEM09\d\d|IDEM10\d\d|dbd:/);
$t->allow_pg_log(qr/prepared statement "idem_\w+" does not exist|deadlock|administrator command|immediate shutdown|shutting down|starting up|not yet accepting|not properly shut down|recovery|terminating|connection to client lost|lock timeout|statement timeout/);
$t->finish;
