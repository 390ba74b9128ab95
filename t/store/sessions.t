# Whatever role, database, pooler and time zone are set to. CONTRACT section 7, C058, C085.
use strict;
use warnings;
use Idem::Driver;

my $pg = migrated(settings => { wal_writer_delay => '10s' });
my $round = 0;

# A whole life of a record.
sub life {
    my ($name, $d) = @_;
    my $key = 'life' . ++$round;
    subtest $name => sub {
        my $reserve = $d->call('reserve', key => $key);
        is($reserve->{result}, 'OK', 'reserved') or diag($d->log);
        is($d->call('reserve', key => $key)->{state}, 'EXECUTING', 'found');
        is($d->call('settle', operation => $reserve->{operation}, body => "\0\xff", code => 201)->{result}, 'OK', 'settled');
        my $found = $d->call('reserve', key => $key);
        is($found->{body}, "\0\xff", 'replayed');
        my $race = $d->call('race', threads => 16, key => "$key-race", deadline => 15_000);
        is("$race->{OK} $race->{FOUND}", '1 15', 'one of many at once') or diag(explain($race), $d->log);
        my $open = $d->call('reserve', key => "$key-doubt");
        $d->call('find', key => "$key-doubt", as => 'seen');
        $pg->do("UPDATE idempotency_records SET owner = NULL WHERE operation_id = '$open->{operation}'");
        $d->call('find', key => "$key-doubt", as => 'seen');
        is($d->call('take_over', seen => 'seen')->{result}, 'OK', 'taken over');
        is($d->call('settle', operation => $open->{operation}, generation => 2, outcome => 'unknown')->{result}, 'OK', 'in doubt');
        is($d->call('settle', operation => $open->{operation}, generation => 2, outcome => 'rejected')->{state}, 'RESERVED', 'not in doubt');
    };
}

for my $prepared (1, 0) {
    my $how = $prepared ? 'prepared' : 'not prepared';
    for my $isolation ('read committed', 'repeatable read', 'serializable') {
        $pg->do("ALTER ROLE web SET default_transaction_isolation = '$isolation'");
        life("$isolation as the role's default, $how", Idem::Driver->new(pg => $pg, set => { prepared => $prepared }));
    }
    $pg->do('ALTER ROLE web RESET default_transaction_isolation');
}

subtest 'a reserve that meets another one in flight' => sub {
    my $columns = $pg->value(q(SELECT string_agg(CASE attname WHEN 'idem_key' THEN 'k' WHEN 'operation_id' THEN 'gen_random_uuid()' ELSE quote_ident(attname) END, ', ' ORDER BY attnum)
        FROM pg_attribute WHERE attrelid = 'idempotency_records'::regclass AND attnum > 0));
    for my $isolation ('read committed', 'repeatable read', 'serializable') {
        $pg->do("ALTER ROLE web SET default_transaction_isolation = '$isolation'");
        my $d = Idem::Driver->new(pg => $pg, set => { prepared => 0 });
        $d->call('reserve', key => 'model');
        my $other = $pg->session;
        $other->run("BEGIN; INSERT INTO idempotency_records SELECT $columns FROM idempotency_records, (VALUES ('flight $isolation')) AS v (k) WHERE idem_key = 'model'");
        $d->send('reserve', key => "flight $isolation", deadline => 5000);
        ok(wait_for(sub { $pg->value(q(SELECT count(*) FROM pg_stat_activity WHERE usename = 'web' AND wait_event_type = 'Lock')) > 0 }), "$isolation: it waits for the other's end");
        $other->run('COMMIT');
        my $answer = $d->answer;
        is("$answer->{result} $answer->{maybe}", 'FOUND 0', "$isolation: and finds its record") or diag($d->log);

        $other->run("BEGIN; INSERT INTO idempotency_records SELECT $columns FROM idempotency_records, (VALUES ('undone $isolation')) AS v (k) WHERE idem_key = 'model'");
        $d->send('reserve', key => "undone $isolation", deadline => 5000);
        ok(wait_for(sub { $pg->value(q(SELECT count(*) FROM pg_stat_activity WHERE usename = 'web' AND wait_event_type = 'Lock')) > 0 }), "$isolation: it waits again");
        $other->run('ROLLBACK');
        is($d->answer->{result}, 'OK', "$isolation: and reserves when the other is undone");
    }
    $pg->do('ALTER ROLE web RESET default_transaction_isolation');
};

subtest 'expiry does not look at time zones' => sub {
    for my $zone ('Pacific/Kiritimati', 'America/Anchorage', 'Europe/Berlin', 'UTC') {
        $pg->do("ALTER ROLE web SET timezone = '$zone'");
        my $d = Idem::Driver->new(pg => $pg, env => { TZ => 'Asia/Tokyo' });
        my $live = $d->call('reserve', key => "$zone-live", retention => 3_600_000);
        $d->call('settle', operation => $live->{operation});
        my $found = $d->call('find', key => "$zone-live");
        is($found->{expired}, 0, "$zone: within its retention");
        cmp_ok(abs($found->{created} - time), '<', 60, "$zone: made now");
        is($found->{expires} - $found->{settled}, 3600, "$zone: expires an hour later");
        cmp_ok($found->{age}, '<', 60_000, "$zone: young");
        $pg->do("UPDATE idempotency_records SET expires_at = now() - interval '1 s' WHERE idem_key = '$zone-live'");
        is($d->call('find', key => "$zone-live")->{expired}, 1, "$zone: past it");
        # a day of retention is 24 hours, on the day the clocks change too
        my $day = $d->call('reserve', key => "$zone-day", retention => 86_400_000 * 400);
        $d->call('settle', operation => $day->{operation});
        $found = $d->call('find', key => "$zone-day");
        is($found->{expires} - $found->{settled}, 86_400 * 400, "$zone: 400 days of 24 hours");
        $pg->do("UPDATE idempotency_records SET owned_at = now() - interval '9000 h' WHERE idem_key = '$zone-day'");
        is(int($d->call('find', key => "$zone-day")->{age} / 3_600_000), 9000, "$zone: an age in hours");
    }
    $pg->do('ALTER ROLE web RESET timezone');
};

subtest 'commits are durable whatever the role says' => sub {
    # Here nothing but a commit that waits gets to the disk in the next ten seconds, and the server does not live that long.
    for my $prepared (1, 0) {
        for my $setting (qw(off)) {
            $pg->do("ALTER ROLE web SET synchronous_commit = $setting");
            my $d = Idem::Driver->new(pg => $pg, set => { prepared => $prepared });
            my $key = "durable-$setting-$prepared";
            my $reserve = $d->call('reserve', key => $key);
            $pg->kill9;
            $pg->start;
            my $after = Idem::Driver->new(pg => $pg);
            is($after->call('find', key => $key)->{result}, 'OK', "$setting, prepared $prepared: a reserve outlives the server");
            $after->call('settle', operation => $reserve->{operation});
            $pg->kill9;
            $pg->start;
            is(Idem::Driver->new(pg => $pg)->call('find', key => $key)->{state}, 'SUCCEEDED', "$setting, prepared $prepared: so does a settlement");
        }
    }
    $pg->do('ALTER ROLE web RESET synchronous_commit');
};

subtest 'behind PgBouncer in transaction mode' => sub {
    my $root = own_folder('pgbouncer');
    my $port = free_port();
    spew("$root/users", qq("web" ""\n"admin" ""\n));
    spew("$root/ini", join("\n", '[databases]', sprintf('%s = host=%s port=%d', $pg->database, $pg->socket_dir, $pg->port), '[pgbouncer]',
        'listen_addr = 127.0.0.1', "listen_port = $port", 'auth_type = trust', "auth_file = $root/users", 'pool_mode = transaction',
        'default_pool_size = 2', 'server_reset_query =', "unix_socket_dir = $root", "pidfile = $root/pid", 'ignore_startup_parameters = extra_float_digits', ''));
    my $pid = spawn(cmd => [ needed('/usr/sbin/pgbouncer'), "$root/ini" ], out => "$root/log", session => 1, dir => $root);
    at_end(sub { end_process($pid, 'TERM', 5) });
    my $conninfo = sprintf 'host=127.0.0.1 port=%d dbname=%s', $port, $pg->database;
    ok(wait_for(sub { IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $port) }), 'PgBouncer is there') or diag(slurp("$root/log"));
    $pg->do(q(ALTER ROLE web SET synchronous_commit = off));
    $pg->do(q(ALTER ROLE web SET default_transaction_isolation = serializable));
    my $d = Idem::Driver->new(conninfo => "$conninfo user=web", set => { prepared => 0 });
    life('without prepared statements', $d);
    is(seen_by_others("$conninfo user=web"), 'off serializable 0 0', 'nothing of ours is left on the sessions of others');
    $pg->do('ALTER ROLE web RESET ALL');
};

# What another client of the same pool sees on each of its two server connections.
sub seen_by_others {
    my ($conninfo) = @_;
    my %seen;
    for (1 .. 8) {
        my ($status, $said) = run(self => 1, cmd => [ "$pg->{bin}/psql", '-XAtq', '-d', $conninfo, '-c',
            q(SELECT current_setting('synchronous_commit') || ' ' || current_setting('default_transaction_isolation') || ' ' || current_setting('statement_timeout') || ' ' || (SELECT count(*) FROM pg_prepared_statements)) ]);
        chomp $said;
        $seen{$said} = 1;
    }
    return join '; ', sort keys %seen;
}

subtest 'a role that may do no more than idempotency_writer' => sub {
    for my $sql ('UPDATE idempotency_control SET writer_epoch = 9', 'DELETE FROM idempotency_control', 'UPDATE idempotency_events SET actor = $$x$$',
        'INSERT INTO idempotency_aliases VALUES ($$a$$,$$b$$,$$c$$,$$d$$,now(),$$e$$,$$f$$)',
        'INSERT INTO idempotency_effects (tenant_id, operation_id, generation, effect, provider, downstream_key, replayable, begun_at) VALUES ($$t$$, gen_random_uuid(), 1, $$e$$, $$p$$, $$k$$, false, now())',
        'SELECT * FROM idempotency_outbox', 'TRUNCATE idempotency_records', 'DROP TABLE idempotency_records', 'CREATE TABLE x (y int)') {
        ok(!eval { $pg->do($sql, user => 'web'); 1 }, "it may not: $sql");
    }
    ok(eval { $pg->do('SELECT * FROM idempotency_events, idempotency_aliases, idempotency_effects, idempotency_owners', user => 'web'); 1 }, 'it may look');
};

subtest 'a connection that comes again with what was prepared on it' => sub {
    my $d = Idem::Driver->new(pg => $pg);
    is($d->call('reserve', key => 'before')->{result}, 'OK', 'it is there');
    is($d->call('meddle', again => 1)->{count}, 1, 'made ready again');
    is($d->call('reserve', key => 'afterwards')->{result}, 'OK', 'and of use');
    is($d->call('connections')->{opened}, 1, 'the same connection');
    unlike($pg->log, qr/already exists/, 'the server has no error to log');
};

subtest 'secrets and payloads stay out of the log' => sub {
    my $d = Idem::Driver->new(pg => $pg);
    my $secret = 'sk_live_secret';
    $d->call('reserve', key => "$secret\xff", tenant => $secret, principal => $secret);
    $d->call('settle', operation => uuid(), outcome => 'succeeded', code => 201, body => $secret, actor => $secret, digest => $secret);
    $pg->do('ALTER TABLE idempotency_records ADD CONSTRAINT x CHECK (idem_key <> $$sk_live_secret$$)');
    is($d->call('reserve', key => $secret)->{result}, 'UNAVAILABLE', 'a refused row');
    $pg->do('ALTER TABLE idempotency_records DROP CONSTRAINT x');
    like($d->log, qr/SQLSTATE 23514/, 'is logged by what was wrong');
    unlike($d->log, qr/$secret/, 'and not by what was in it');
};

done_testing;
