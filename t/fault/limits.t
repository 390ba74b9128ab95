# Few connections: more slow requests than there are of them, none to be had, and what start-up says about it.
use strict;
use warnings;
use Idem::Test;
use Time::HiRes qw(time);

my $one_child = "ServerLimit 1\nStartServers 1\nThreadsPerChild 25\nMaxRequestWorkers 25\nMinSpareThreads 1\nMaxSpareThreads 25\n";
my $t = Idem::Test->new(start => 0, mpm_config => $one_child, pg_arg => { settings => { max_connections => 17, superuser_reserved_connections => 4 } },
    backends => ['proxy'], config => "IdempotencyStoreTimeout 1s\n" . protected({ by => 'proxy' }, '/proxy', 'proxy'));
$t->pg->do('CREATE ROLE other LOGIN');
# The rule for a pool is each child's own; the server's limit is met by all of two servers.
my $twin = $t->twin;
my $c = $t->both;
my $body = '{"amount":10}';

sub dbd {
    my ($max, $more) = @_;
    return sprintf qq(DBDriver pgsql\nDBDParams "%s%s"\nDBDMin 0\nDBDKeep 2\nDBDMax %d\n),
        $t->pg->conninfo(user => 'web') =~ s/ connect_timeout=2//r, $more // ' connect_timeout=2', $max;
}

sub again {
    my ($max) = @_;
    for my $httpd ($t->httpd, $twin->httpd) {
        $httpd->stop;
        $httpd->{dbd} = dbd($max);
        $httpd->start;
    }
}

sub states { return map { $_->{state} // '' } $t->pg->query("SELECT state FROM pg_stat_activity WHERE usename = 'web'") }

sub slow_ones {
    my ($name, $most) = @_;
    subtest $name => sub {
        $t->backend->behave(hold => 1);
        ran($t, 12, $name, sub {
            my @running = map { $c->send(POST => '/proxy', key => fresh_key(), body => $body) } 1 .. 12;
            ok(wait_for(sub { $t->record_count("status = 'EXECUTING'") == 12 }, 20), 'all twelve run at once');
            my @states = states();
            cmp_ok(scalar @states, '<=', $most, "over $most connection(s) at most");
            is_deeply([ grep { $_ ne 'idle' } @states ], [], 'none is in a transaction, none is in use') or diag("@states");
            $t->backend->release;
            is((grep { $_->response->status != 200 } @running), 0, 'all complete');
        });
        is($t->record_count("status <> 'SUCCEEDED'"), 0, 'all are settled');
        $t->backend->behave;
    };
}

again(2);
slow_ones('C082 a pool of 2 in each of two servers, 12 slow requests', 2);
again(5);
slow_ones('C082 a pool of 5, 12 slow requests', 8);

subtest 'C080 a restart between requests' => sub {
    for my $mode (qw(fast immediate)) {
        is($c->post('/proxy', key => fresh_key(), body => $body)->status, 200, 'runs before') for $t, $twin;
        $t->pg->restart($mode);
        my @status;
        ran($t, 4, "$mode: four keys", sub {
            for my $key (map { fresh_key() } 1 .. 4) {
                ok(wait_for(sub { push @status, $c->post('/proxy', key => $key, body => $body)->status; $status[-1] == 200 }, 10), 'runs');
            }
        });
        cmp_ok(scalar(grep { $_ != 200 } @status), '<=', 2, "$mode: at most one 503 from each server") or diag("@status");
    }
};

subtest 'somebody has locked the table' => sub {
    my ($known, $first) = (fresh_key());
    $first = $c->post('/proxy', key => $known, body => $body);
    my $session = $t->pg->session;
    $session->run('BEGIN; LOCK TABLE idempotency_records IN ACCESS EXCLUSIVE MODE');
    my @keys = map { fresh_key() } 1 .. 8;
    my @log = map { $_->httpd->log } $t, $twin;
    ran($t, 0, 'while it is locked', sub {
        my $before = time;
        my @res = $c->parallel(map { [ POST => '/proxy', key => $_, body => $body ] } @keys);
        is((grep { $_->status != 503 } @res), 0, 'all are refused');
        cmp_ok(time - $before, '<', 3, 'by their deadline');
    });
    my $more = join '', map { substr $_->httpd->log, length shift @log } $t, $twin;
    like($more, qr/IDEM1003.*55P03/, 'the server says why');
    unlike($more, qr/IDEM0902/, 'which is no outage') or diag($more);
    unlike($more, qr/had no answer/, 'and leaves nothing in doubt');
    $session->run('ROLLBACK');
    ran($t, 8, 'afterwards', sub { is((grep { $_->status != 200 } $c->parallel(map { [ POST => '/proxy', key => $_, body => $body ] } @keys)), 0, 'all run at once') });
    is_replay($c->post('/proxy', key => $known, body => $body), $first, 'afterwards');
    # for a short time nobody is refused
    $session->run('BEGIN; LOCK TABLE idempotency_records IN ACCESS EXCLUSIVE MODE');
    my $running = $c->send(POST => '/proxy', key => fresh_key(), body => $body);
    ok(wait_for(sub { $t->pg->log =~ /lock timeout/ && $running->silent(0.05) }, 5), 'it waits');
    $session->run('ROLLBACK');
    is($running->response->status, 200, 'and runs');
    $session->close;
};

subtest 'max_connections is reached' => sub {
    again(4);
    is($c->post('/proxy', key => fresh_key(), body => $body)->status, 200, 'one connection is open') for $t, $twin;
    my @others;
    my $filled = 0;
    while (!$filled && @others < 16) {
        my $session = $t->pg->session(user => 'other');
        $filled = !eval { $session->run('SELECT 1', 5); 1 };
        push @others, $session;
    }
    ok($filled, 'there are no more to be had');
    my @res;
    ran($t, 30, 'with those there are', sub { @res = $c->parallel(map { [ POST => '/proxy', key => fresh_key(), body => $body ] } 1 .. 30) });
    is((grep { $_->status != 200 } @res), 0, 'all of them are served');
    my $before = time;
    ran($t, 0, 'with none', sub {
        $t->pg->do("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'web'");
        for (1 .. 2) {
            ok(wait_for(sub { push @others, $t->pg->session(user => 'other'); eval { $others[-1]->run('SELECT 1', 5); 1 } }, 10), 'somebody else has it');
        }
        problem($c->post('/proxy', key => fresh_key(), body => $body), 'store-unavailable') for $t, $twin;
    });
    $_->close for @others;
    ok($t->found_again($c, POST => '/proxy', body => $body), 'served as soon as they are gone');
    my $key = fresh_key();
    my $first = $c->post('/proxy', key => $key, body => $body);
    is_replay($c->post('/proxy', key => $key, body => $body), $first, 'afterwards');
    $t->httpd->expect_log(qr/IDEM0902.*(?:too many clients|connection slots)/);
};

subtest 'what start-up says' => sub {
    my ($status, $said) = $t->httpd->configtest($t->httpd->{config}, dbd => dbd(2, ''));
    is($status, 0, 'accepted');
    like($said, qr/IDEM1202.*connect_timeout/, 'a missing connect_timeout is a warning');
    ($status, $said) = $t->httpd->configtest($t->httpd->{config}, dbd => dbd(2));
    unlike($said, qr/IDEM12/, 'nothing to say where it is there');
    ($status, $said) = $t->httpd->configtest("IdempotencyStoreFailure Open\n" . $t->httpd->{config}, dbd => dbd(2));
    like($said, qr/IDEM1204.*IdempotencyStoreFailure Open/, 'Open is a warning');
    ($status, $said) = $t->httpd->configtest("IdempotencyStoreFailure Ajar\n" . $t->httpd->{config}, dbd => dbd(2));
    isnt($status, 0, 'any other word is refused');
    like($said, qr/IdempotencyStoreFailure: 'Ajar'|IdempotencyStoreFailure.*Ajar/, 'by name') or diag($said);
    unlike($t->httpd->log, qr/IDEM1201/, 'the pools so far fitted');
    again(14);
    is($c->post('/proxy', key => fresh_key(), body => $body)->status, 200, 'runs') for $t, $twin;
    $t->httpd->expect_log(qr/IDEM1201: 1 children x DBDMax 14 = 14 connections.* has 13: see conf\/examples\/sizing.conf/);
    ok(wait_for(sub { $t->httpd->log =~ /IDEM1201/ }, 5), 'a pool that does not fit is a warning at the first connection');
};

unlike($_->httpd->log, qr/exit signal/, 'no child has crashed') for $t, $twin;
$t->httpd->allow_log(qr/IDEM0904|IDEM0902|IDEM1003/, qr/dbd:/);
$t->allow_pg_log(qr/lock timeout|prepared statement "\w+" does not exist|database system|server process|could not|too many clients|remaining connection slots|terminating connection/);
$t->finish;
