# C074: httpd is restarted, stopped and recycled while operations run. Half of the retries come to a second server, which is
# not.
use strict;
use warnings;
use Idem::Orders;
use Idem::Test;

my $pg;
my @MODES = qw(external transactional repeatable);
my %MPM = (
    event => "ServerLimit 4\nStartServers 1\nThreadsPerChild 10\nMaxRequestWorkers 40\nMinSpareThreads 1\nMaxSpareThreads 40\n",
    prefork => "ServerLimit 20\nStartServers 6\nMinSpareServers 1\nMaxSpareServers 20\nMaxRequestWorkers 20\n",
);
my $body = '{"amount":10}';

for my $mpm (qw(event prefork)) {
    my $t = Idem::Test->new(pg => $pg, mpm => $mpm, mpm_config => $MPM{$mpm}, start => 0);
    $pg = $t->pg;
    my $orders = Idem::Orders->new($t);
    my $config = $orders->load . "IdempotencyLease 2s\n" . join('', map { $orders->place("/$_", $_) } @MODES)
        . $orders->place('/wait', 'external', 'IdempotencyWait 20s');
    $t->httpd->{config} = $t->expand($config);
    $pg->do('DELETE FROM idempotency_owners'); # of those that the other MPM was stopped with
    $t->httpd->start;
    my $twin = $t->twin(mpm => $mpm eq 'event' ? 'prefork' : 'event', config => $t->httpd->{config}, httpd => { env => $t->httpd->{env} });
    $twin->httpd->start;
    my ($c, $both) = ($t->client->with(authority => 'shop.example'), $t->both);
    my $tags = 0;

    # One operation of every mode, in the middle of its work: [place, key, connection, tag].
    my $begin = sub {
        my @all = map { my $tag = "$mpm-" . ++$tags; my $key = fresh_key();
            [ "/$_", $key, $c->send(POST => "/$_", key => $key, body => $body, headers => [ 'X-Hold' => "before $tag" ]), $tag ] } @MODES;
        ok(wait_for(sub { !grep { !$orders->reached($_->[3]) } @all }, 20), "$mpm: operations are at work");
        return @all;
    };
    my $retry = sub { my ($op) = @_; return $both->post($op->[0], key => $op->[1], body => $body) };
    my $leases = sub {
        my ($op, $seconds) = @_;
        return wait_for(sub { $pg->value("SELECT now() - owned_at > interval '$seconds s' FROM idempotency_records WHERE idem_key = '$op->[1]'") eq 't' }, 20);
    };
    my $owners = sub { my %other = map { $_ => 1 } $twin->httpd->children; return grep { !$other{$_} } map { $_->{pid} } $pg->query('SELECT pid FROM idempotency_owners') };
    my $whole = sub {
        my ($name, @all) = @_;
        $orders->go(map { $_->[3] } @all);
        for my $op (@all) {
            my $first = $op->[2]->response;
            is($first && $first->status, 201, "$name, $op->[0]: it comes to its end") or next;
            push @$op, $first;
        }
    };
    my $replays = sub {
        my ($name, @all) = @_;
        for my $op (@all) {
            my $first = $op->[4] or next;
            is_replay($retry->($op), $first, "$name, $op->[0]");
            is($orders->count($first->operation), 1, "$name, $op->[0]: one effect");
        }
    };

    subtest "$mpm: graceful" => sub {
        my @all = $begin->();
        my @old = $owners->();
        my ($key, $waiting) = fresh_key();
        my $running = $c->send(POST => '/wait', key => $key, body => $body, headers => [ 'X-Hold' => "before $mpm-wait" ]);
        ok(wait_for(sub { $orders->reached("$mpm-wait") }, 20), 'one that others wait for');
        $waiting = $c->send(POST => '/wait', key => $key, body => $body);
        ok($waiting->silent(0.3), 'one that waits') if $mpm eq 'event';
        $t->httpd->graceful;
        problem($waiting->response, 'in-progress') if $mpm eq 'event';
        ok($leases->($all[0], 4.5), 'more than two leases pass');
        problem($retry->($_), 'in-progress', operation => 1) for @all;
        $orders->go("$mpm-wait");
        is($running->response->status, 201, 'what others waited for comes to its end');
        $whole->('graceful', @all);
        $replays->('graceful', @all);
        ok(wait_for(sub { !grep { kill 0 => $_ } @old }, 20), 'the old children end');
        my %left = map { $_ => 1 } $owners->();
        is_deeply([ grep { $left{$_} } @old ], [], 'and have said goodbye');
    };

    subtest "$mpm: graceful-stop" => sub {
        my @all = $begin->();
        my $pid = $t->httpd->pid;
        kill WINCH => $pid;
        ok(wait_for(sub { !$t->httpd->answers }, 20), 'nobody is let in any more');
        ok($leases->($all[0], 4.5), 'more than two leases pass');
        $whole->('graceful-stop', @all);
        ok(wait_for(sub { !alive($pid) }, 20), 'it ends');
        $t->httpd->{pid} = undef;
        is_deeply([ $owners->() ], [], 'and leaves no owner behind');
        $t->httpd->start;
        $replays->('graceful-stop', @all);
    };

    subtest "$mpm: stop" => sub {
        my @all = $begin->();
        my $pid = $t->httpd->pid;
        kill TERM => $pid;
        ok(wait_for(sub { !alive($pid) }, 30), 'it ends');
        $t->httpd->{pid} = undef;
        $orders->go(map { $_->[3] } @all);
        $t->httpd->start;
        ok(wait_for(sub { !grep { $pg->value("SELECT count(*) FROM idempotency_owners o JOIN idempotency_records r USING (owner) WHERE r.idem_key = '$_->[1]' AND o.seen_at + interval '2s' > now()") } @all }, 20), 'the lease is over');
        for my $op (@all) {
            my $res = $retry->($op);
            my $mode = substr $op->[0], 1;
            my $operation = $res->operation;
            if ($mode eq 'external') {
                ok($res->status == 201 && $res->replayed || ($res->json->{type} // '') =~ /outcome-unknown/, 'external: settled, or unknown') or diag($res->body);
            }
            else {
                is($res->status, 201, "$mode: settled, or run now") or diag($res->body);
            }
            cmp_ok($orders->count($operation), '<=', $mode eq 'repeatable' ? 2 : 1, "$mode: effects");
        }
    };
    $t->httpd->allow_log(qr/IDEM0401|AH00045|AH00047|AH00046|AH01265|AH02429|AH00161|AH00484|AH00288|End of script output|cgid:error|cgi:error|IDEM0501|AH03490|AH10159/);
    $t->allow_pg_log(qr/IDEM1|generation|connection to client lost|idempotency_/);
    $t->finish(more => 1);
}

# A child that has served its share goes while one of its operations still runs.
my $t = Idem::Test->new(pg => $pg, start => 0, mpm_config => "ServerLimit 4\nStartServers 1\nThreadsPerChild 10\nMaxRequestWorkers 40\nMinSpareThreads 1\nMaxSpareThreads 10\nMaxConnectionsPerChild 4\n");
my $orders = Idem::Orders->new($t);
$t->httpd->{config} = $t->expand($orders->load . "IdempotencyLease 2s\n" . $orders->place('/external', 'external'));
$t->httpd->start;
subtest 'MaxConnectionsPerChild' => sub {
    my $c = $t->client;
    my $key = fresh_key();
    my $running = $c->send(POST => '/external', key => $key, body => $body, headers => [ 'X-Hold' => 'before recycle' ]);
    ok(wait_for(sub { $orders->reached('recycle') }, 20), 'an operation is at work');
    my ($old) = $pg->query("SELECT o.owner, o.pid FROM idempotency_owners o JOIN idempotency_records r USING (owner) WHERE r.idem_key = '$key'");
    ok(wait_for(sub { $c->post('/external', key => fresh_key(), body => $body); $pg->value("SELECT count(*) FROM idempotency_owners WHERE owner <> '$old->{owner}' AND seen_at > now() - interval '2s'") }, 20), 'another child serves');
    ok(wait_for(sub { $pg->value("SELECT now() - owned_at > interval '4.5 s' FROM idempotency_records WHERE idem_key = '$key'") eq 't' }, 20), 'more than two leases pass');
    problem($c->post('/external', key => $key, body => $body), 'in-progress');
    $orders->go('recycle');
    my $first = $running->response;
    is($first->status, 201, 'it comes to its end');
    is_replay($c->post('/external', key => $key, body => $body), $first, 'the retry');
    is($orders->count($first->operation), 1, 'one effect');
    ok(wait_for(sub { !$pg->value("SELECT count(*) FROM idempotency_owners WHERE owner = '$old->{owner}'") }, 20), 'the old child has said goodbye');
};
$t->finish;
