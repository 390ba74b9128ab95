# What a database refuses because somebody else was in the way (a deadlock, a serialization failure, a lock that was
# waited for long enough) passes: the statement is sent again, on two servers with and without prepared statements, and
# no such refusal counts as an outage.
use strict;
use warnings;
use Idem::Test;

my $t = Idem::Test->new(start => 0, backends => ['proxy'], pg_arg => { settings => { deadlock_timeout => '50ms' } },
    mpm_config => "ServerLimit 1\nStartServers 1\nThreadsPerChild 25\nMaxRequestWorkers 25\nMinSpareThreads 1\nMaxSpareThreads 25\n",
    config => "IdempotencyStoreTimeout 10s\n" . protected({ by => 'proxy' }, '/proxy', 'proxy'));
my $twin = $t->twin(mpm => 'prefork', config => "IdempotencyStorePrepare Off\n$t->{config}");
$_->httpd->start for $t, $twin;
my %server = (prepared => $t, 'not prepared' => $twin);
my $body = '{"amount":10}';

sub client { my ($server) = @_; return $server{$server}->client->with(authority => 'shop.example') }

# Records whose keys say so are refused so often when they are written: nextval outlives a rollback.
$t->pg->do(<<'SQL');
CREATE SEQUENCE refusals;
GRANT USAGE ON refusals TO web;
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF NEW.idem_key LIKE TG_OP || '-%' AND nextval('refusals') <= 4 THEN
        RAISE EXCEPTION USING ERRCODE = split_part(NEW.idem_key, '-', 2), MESSAGE = 'refused by a test';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER refuse BEFORE INSERT OR UPDATE ON idempotency_records FOR EACH ROW EXECUTE FUNCTION refuse();
CREATE FUNCTION lock_two() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    PERFORM pg_advisory_xact_lock(1);
    PERFORM pg_advisory_xact_lock(3);
    PERFORM pg_advisory_xact_lock(2);
    RETURN NEW;
END $$;
CREATE TRIGGER lock_two BEFORE INSERT ON idempotency_records FOR EACH ROW WHEN (NEW.idem_key LIKE 'dead%') EXECUTE FUNCTION lock_two();
SQL

sub refused { my ($like) = @_; return scalar(() = $t->pg->log =~ /ERROR:  $like/g) }

my %name = ('40001' => 'serialization failure', '40P01' => 'deadlock', '55P03' => 'lock timeout');
for my $state (sort keys %name) {
    subtest "$state, $name{$state}" => sub {
        for my $server (sort keys %server) {
            for my $what (qw(INSERT UPDATE)) {
                $t->pg->do('ALTER SEQUENCE refusals RESTART');
                my $before = refused('refused by a test');
                my ($key, $first) = ("$what-$state-" . fresh_key());
                ran($t, 1, "$server, $what", sub { $first = client($server)->post('/proxy', key => $key, body => $body) });
                is($first->status, 200, "$server, $what: sent again, until it is taken");
                is(refused('refused by a test'), $before + 4, "$server, $what: after four refusals");
                is_replay(client($_)->post('/proxy', key => $key, body => $body), $first, "$server, $what, seen by $_") for sort keys %server;
                is($t->pg->value("SELECT status FROM idempotency_records WHERE idem_key = '$key'"), 'SUCCEEDED', "$server, $what: settled");
            }
        }
    };
}

# Waits for, and holds, the advisory locks of these numbers.
sub locks { my ($granted) = @_; return join ',', map { $_->{objid} } $t->pg->query("SELECT objid FROM pg_locks WHERE locktype = 'advisory' AND granted = $granted ORDER BY 1") }

subtest 'a real deadlock with somebody else\'s transaction, again and again' => sub {
    my ($other, $gate) = map { $t->pg->session } 1, 2;
    # only ours looks for a deadlock in time, so it is the one that is ended
    $other->run(q(SET deadlock_timeout = '60s'));
    for my $server (sort keys %server) {
        for my $round (1 .. 4) {
            my $before = refused('deadlock detected');
            my ($key, $first) = ('dead-' . fresh_key());
            ran($t, 1, "$server, round $round", sub {
                $other->run('BEGIN; SELECT pg_advisory_xact_lock(2)');
                $gate->run('BEGIN; SELECT pg_advisory_xact_lock(3)');
                my $running = client($server)->send(POST => '/proxy', key => $key, body => $body);
                ok(wait_for(sub { locks('true') eq '1,2,3' && locks('false') eq '3' }, 10), 'the reserve has the one');
                print { $other->{to} } "SELECT pg_advisory_xact_lock(1);\n";
                ok(wait_for(sub { locks('false') eq '1,3' }, 10), 'for which somebody waits who has the other');
                $gate->run('COMMIT');
                ok(wait_for(sub { refused('deadlock detected') > $before }, 10), 'the reserve is ended');
                $other->run('COMMIT');
                $first = $running->response;
                is($first->status, 200, "$server: and was sent again");
            });
            is_replay(client($_)->post('/proxy', key => $key, body => $body), $first, "$server, seen by $_") for sort keys %server;
        }
    }
};

# Without prepared statements nobody sets the isolation, so that of the role counts.
subtest 'a real serialization failure' => sub {
    $t->pg->do('ALTER ROLE web SET default_transaction_isolation = serializable');
    $t->pg->do("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'web'");
    my ($template, $first) = (fresh_key());
    ok(wait_for(sub { ($first = client('not prepared')->post('/proxy', key => $template, body => $body))->status == 200 }, 10), 'one is there');
    my @columns = map { $_->{attname} } $t->pg->query("SELECT attname FROM pg_attribute WHERE attrelid = 'idempotency_records'::regclass AND attnum > 0 AND NOT attisdropped");
    for my $round (1 .. 4) {
        my $key = fresh_key();
        my $before = refused('could not serialize');
        my $as = join ', ', map { $_ eq 'idem_key' ? "'$key'" : $_ eq 'operation_id' ? 'gen_random_uuid()' : $_ } @columns;
        my $other = $t->pg->session;
        $other->run("BEGIN; INSERT INTO idempotency_records (@{[ join ', ', @columns ]}) SELECT $as FROM idempotency_records WHERE idem_key = '$template'");
        ran($t, 0, "round $round", sub {
            my $running = client('not prepared')->send(POST => '/proxy', key => $key, body => $body);
            ok(wait_for(sub { $t->pg->value(q(SELECT count(*) FROM pg_stat_activity WHERE usename = 'web' AND wait_event_type = 'Lock')) > 0 }, 10), 'the reserve waits for a transaction with the same key');
            $other->run('COMMIT');
            my $res = $running->response;
            is($res->status . ' ' . $res->body, '200 ' . $first->body, 'whose record it gets');
            cmp_ok(refused('could not serialize'), '>', $before, 'not at its first sending');
        });
        $other->close;
    }
    $t->pg->do('ALTER ROLE web RESET default_transaction_isolation');
};

for my $server (sort keys %server) {
    unlike($server{$server}->httpd->log, qr/IDEM090[24]|had no answer/, "$server: nothing of it is an outage");
}
$t->allow_pg_log(qr/refused by a test|deadlock detected|could not serialize|terminating connection|unexpected EOF/);
$t->finish;
