# What a server can do to a call: hang, restart, go away, be unfit. CONTRACT sections 7 and 9.
use strict;
use warnings;
use Idem::Driver;

my $pg = migrated();

subtest 'a server that hangs' => sub {
    my $d = Idem::Driver->new(pg => $pg);
    $d->call('reserve', key => 'hang');
    my $seen = $d->call('find', key => 'hang', as => 'seen');
    my $operation = $seen->{operation};
    my %call = (
        reserve => [ 'AMBIGUOUS', key => 'hang2' ], settle => [ 'AMBIGUOUS', operation => $operation ],
        take_over => [ 'AMBIGUOUS', seen => 'seen' ], dispatch => [ 'AMBIGUOUS', operation => $operation ],
        mark_unknown => [ 'AMBIGUOUS', seen => 'seen' ], withdraw => [ 'AMBIGUOUS', operation => $operation ],
        find => [ 'AMBIGUOUS', key => 'hang' ], find_operation => [ 'AMBIGUOUS', operation => $operation ], heartbeat => ['AMBIGUOUS'],
    );
    # each with a connection of its own that is open, as a hung one is never lent again
    my %driver = map { $_ => Idem::Driver->new(pg => $pg) } keys %call;
    for my $other (values %driver) {
        $other->call('find', key => 'hang', as => 'seen');
        $other->call('set', timeout => 400);
    }
    $pg->sigstop;
    for my $call (sort keys %call) {
        my ($want, @value) = @{ $call{$call} };
        my $answer = $driver{$call}->call($call, @value, deadline => 400);
        is($answer->{result}, $want, "$call: sent, and nobody can say");
        cmp_ok($answer->{ms}, '<=', 500, "$call: returns by its deadline");
    }
    $d->call('set', timeout => 2000);
    my $looked = $d->call('reserve', key => 'hang3', may_write => 0, deadline => 300);
    is($looked->{result}, 'UNAVAILABLE', 'what only looks has certainly written nothing');
    $d->call('set', reconnect => 1);
    my $answer = $d->call('reserve', key => 'hang4', deadline => 300);
    is($answer->{result}, 'UNAVAILABLE', 'no connection: certainly nothing was written');
    is($answer->{maybe}, 0, 'and nothing will be');
    cmp_ok($answer->{ms}, '<=', 400, 'in time');
    $pg->cont;
    is($d->call('reserve', key => 'hang4')->{result}, 'OK', 'it goes on by itself');
    my $late = $d->call('reserve', key => 'hang2');
    ok($late->{result} eq 'FOUND' || $late->{result} eq 'OK', 'a late reserve may have been made');
};

subtest 'a server that restarts' => sub {
    my $d = Idem::Driver->new(pg => $pg);
    $d->call('race', threads => 16, key => 'restart');
    my $before = $d->call('connections');
    cmp_ok($before->{idle}, '>=', 4, 'several connections are open');
    for my $mode (qw(fast immediate)) {
        $pg->restart($mode);
        my $answer = $d->call('reserve', key => "restart-$mode");
        is($answer->{result}, 'OK', "$mode: the dead ones are noticed before anything is sent");
        is($answer->{maybe}, 0, "$mode: so nothing is in doubt");
        is($d->call('settle', operation => $answer->{operation}, body => 'b')->{result}, 'OK', "$mode: settled");
        is($d->call('reserve', key => "restart-$mode")->{result}, 'FOUND', "$mode: prepared statements are there again");
        $d->call('race', threads => 16, key => "restart-again-$mode");
    }
    $pg->kill9;
    my $answer = $d->call('reserve', key => 'dead');
    is($answer->{result}, 'UNAVAILABLE', 'a dead server: certainly nothing was written');
    is($answer->{maybe}, 0, 'nor will be');
    cmp_ok($answer->{ms}, '<', 1000, 'known at once');
    $pg->start;
    is($d->call('reserve', key => 'dead')->{result}, 'OK', 'back again');
};

subtest 'a connection that is ended while it is idle' => sub {
    my $d = Idem::Driver->new(pg => $pg);
    for my $call ([ 'reserve', key => 'idle' ], [ 'reserve', key => 'idle2' ], [ 'find', key => 'idle' ]) {
        my ($pid) = split /,/, $d->call('connections')->{pids};
        $pg->do("SELECT pg_terminate_backend($pid)");
        wait_for(sub { !$pg->value("SELECT count(*) FROM pg_stat_activity WHERE pid = $pid") });
        is($d->call(@$call)->{result}, 'OK', "$call->[0] takes another one");
    }
};

subtest 'a session that is not what it was' => sub {
    my $d = Idem::Driver->new(pg => $pg, set => { timeout => 3000 });
    for my $sql ('DEALLOCATE ALL', 'DISCARD ALL') {
        cmp_ok($d->call('meddle', sql => $sql)->{count}, '>=', 1, $sql);
        my $answer = $d->call('reserve', key => "meddled $sql");
        is("$answer->{result} $answer->{maybe}", 'OK 0', 'statements are prepared again');
        is($d->call('settle', operation => $answer->{operation}, body => 'b')->{result}, 'OK', 'each of them');
        is($d->call('connections')->{broken}, 0, 'on the same connection');
    }
    for my $again (1, 2) {
        cmp_ok($d->call('meddle')->{count}, '>=', 1, 'reset');
        is($d->call('reserve', key => "reset $again")->{result}, 'OK', 'a reset connection is made ready again');
        is($d->call('connections')->{broken}, 0, 'and kept');
    }
    # its settings are back as well: the server gives up before the client does
    my $blocker = $pg->session;
    $blocker->run('BEGIN; LOCK TABLE idempotency_records IN ACCESS EXCLUSIVE MODE');
    is($d->call('reserve', key => 'reset 3', deadline => 6000)->{result}, 'UNAVAILABLE', 'with its timeouts');
    $blocker->run('ROLLBACK');
    $d->call('meddle', sql => 'BEGIN');
    my $answer = $d->call('reserve', key => 'left open');
    is("$answer->{result} $answer->{maybe}", 'OK 0', 'a transaction that somebody left open is not joined');
    is($d->call('connections')->{broken}, 1, 'that connection is not used');
};

subtest 'a statement that is ended' => sub {
    my $d = Idem::Driver->new(pg => $pg);
    $d->call('race', threads => 12, key => 'several connections');
    cmp_ok($d->call('connections')->{idle}, '>=', 3, 'several connections are open');
    my $blocker = $pg->session;
    $blocker->run('BEGIN; LOCK TABLE idempotency_records IN ACCESS EXCLUSIVE MODE');
    my $answer = $d->call('reserve', key => 'blocked', deadline => 500);
    is($answer->{result}, 'UNAVAILABLE', 'a deadline below the server\'s own limit: it is not begun');
    $answer = $d->call('reserve', key => 'blocked2', deadline => 2000);
    is($answer->{result}, 'UNAVAILABLE', 'the server gave up before: certainly nothing was written');
    is($answer->{maybe}, 0, 'nothing will be');
    cmp_ok($answer->{ms}, '<', 2100, 'in time');
    my $given_up = () = $pg->log =~ /lock timeout/g;
    $d->send('reserve', key => 'patient', deadline => 10_000);
    ok(wait_for(sub { (() = $pg->log =~ /lock timeout/g) > $given_up }, 10), 'the server gives up on the lock');
    $blocker->run('COMMIT');
    is($d->answer->{result}, 'OK', 'and it is sent again until the way is free') or diag($d->log);

    $d->send('reserve', key => 'terminated', deadline => 5000);
    $d->answer;
    $blocker->run('BEGIN; LOCK TABLE idempotency_records IN ACCESS EXCLUSIVE MODE');
    $d->send('reserve', key => 'terminated2', deadline => 5000);
    ok(wait_for(sub { $pg->value(q(SELECT count(*) FROM pg_stat_activity WHERE usename = 'web' AND wait_event_type = 'Lock')) > 0 }), 'one waits');
    $pg->do(q(SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'web' AND wait_event_type = 'Lock'));
    $blocker->run('COMMIT');
    is($d->answer->{result}, 'OK', 'ended by an operator: rolled back, so it is sent again');
};

subtest 'a server that is not fit' => sub {
    my $try = sub {
        my $d = Idem::Driver->new(pg => $pg, heartbeat => 0, @_);
        my $answer = $d->call('reserve', key => 'unfit');
        return "$answer->{result}: " . $d->message;
    };
    $pg->do('UPDATE idempotency_control SET schema_version = schema_version + 1');
    like($try->(), qr/^UNAVAILABLE: the registry has schema version \d+, this build works with \d+: install a newer build/, 'a newer schema');
    $pg->do('UPDATE idempotency_control SET schema_version = 0');
    like($try->(), qr/^UNAVAILABLE: the registry has schema version 0, .*: run idempotencyctl migrate/, 'an older schema');
    $pg->do('UPDATE idempotency_control SET schema_version = ' . ($pg->value('SELECT count(*) FROM idempotency_control') && schema_version()));
    $pg->do('CREATE ROLE stranger LOGIN');
    like($try->(user => 'stranger'), qr/^UNAVAILABLE: the registry cannot be read .*permission denied/, 'no right to read it');
    $pg->do('CREATE DATABASE empty');
    like($try->(conninfo => $pg->conninfo(user => 'web') =~ s/dbname=\S+/dbname=empty/r), qr/^UNAVAILABLE: the registry cannot be read .*does not exist/, 'no registry');
    $pg->do(q(CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'));
    like($try->(conninfo => $pg->conninfo(user => 'web') =~ s/dbname=\S+/dbname=latin/r), qr/^UNAVAILABLE: the database's encoding is not UTF8/, 'no UTF8');
    like($try->(set => { prepared => 0 }, conninfo => $pg->conninfo(user => 'web') . ' client_encoding=LATIN1'), qr/^UNAVAILABLE: client_encoding is LATIN1/, 'another client_encoding without prepared statements');
    is(Idem::Driver->new(pg => $pg, conninfo => $pg->conninfo(user => 'web') . ' client_encoding=LATIN1')->call('reserve', key => "\xc3\xa9")->{result}, 'OK', 'with them it is set');

    $pg->do('ALTER ROLE web SET default_transaction_read_only = on');
    my $d = Idem::Driver->new(pg => $pg, heartbeat => 0);
    my $answer = $d->call('reserve', key => 'readonly');
    is($answer->{result}, 'UNAVAILABLE', 'read-only: certainly nothing was written');
    cmp_ok($d->call('connections')->{broken}, '>', 0, 'and that connection is not used again');
    $pg->do('ALTER ROLE web RESET default_transaction_read_only');

    $pg->stop('fast');
    spew($pg->data . '/standby.signal', '');
    $pg->start;
    like($try->(), qr/^UNAVAILABLE: the server is in recovery/, 'a standby');
    $pg->stop('fast');
    unlink $pg->data . '/standby.signal';
    $pg->start;
    is(Idem::Driver->new(pg => $pg)->call('reserve', key => 'fit')->{result}, 'OK', 'fit again');

    $pg->stop('fast');
    open(my $conf, '>>', $pg->data . '/postgresql.conf') or die $!;
    print $conf "fsync = off\n";
    close $conf;
    $pg->start;
    like($try->(), qr/^UNAVAILABLE: the server runs with fsync off/, 'fsync off');
};

sub schema_version {
    my (undef, $said) = ctl($pg, 'status', '--json');
    my $files = () = glob(source_dir() . '/src/store/schema/[0-9]*.sql');
    return $files;
}

done_testing;
