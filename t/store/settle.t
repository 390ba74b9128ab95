# Settlement: a compare-and-set on operation and generation. CONTRACT sections 4 and 8.
use strict;
use warnings;
use Idem::Cut;
use Idem::Driver;

my $pg = migrated();
my $d = Idem::Driver->new(pg => $pg);
my $digest = 'd' x 32;
my $n = 0;

# A record in a state, as if its way there had been gone; returns its operation.
sub record {
    my ($state, %arg) = @_;
    my $operation = uuid();
    my $key = 'k' . ++$n;
    my $reserve = $d->call('reserve', key => $key, operation => $operation, state => 'RESERVED', %{ $arg{reserve} || {} });
    die "reserve: $reserve->{result}\n" if $reserve->{result} ne 'OK';
    my %times = (
        RESERVED => '', EXECUTING => '', UNKNOWN => ", outcome = 'unknown', settled_at = now(), sweep_at = '-infinity'",
        SUCCEEDED => ", outcome = 'succeeded', settled_at = now(), expires_at = now() + retention, tombstone_until = 'infinity', response_code = 201, response_body = 'first', response_digest = sha256('first'), response_headers = 'h'",
        FAILED_FINAL => ", outcome = 'failed', settled_at = now(), expires_at = now() + retention, tombstone_until = 'infinity', response_code = 402, response_body = 'first', response_digest = sha256('first'), response_headers = 'h'",
        EXPIRED => ", outcome = 'succeeded', settled_at = now() - interval '2 d', expires_at = now() - interval '1 d', tombstone_until = 'infinity'",
    );
    $pg->do("UPDATE idempotency_records SET status = '$state'$times{$state} WHERE operation_id = '$operation'");
    $pg->do("UPDATE idempotency_records SET $arg{set} WHERE operation_id = '$operation'") if $arg{set};
    return $operation;
}

sub row { my ($operation) = @_; return ($pg->query("SELECT * FROM idempotency_records WHERE operation_id = '$operation'"))[0] }
sub events { my ($operation) = @_; return map { "$_->{generation} $_->{from_status} > $_->{to_status}" } $pg->query("SELECT * FROM idempotency_events WHERE operation_id = '$operation' ORDER BY event_id") }
sub settle { my ($operation, %arg) = @_; return $d->call('settle', operation => $operation, code => 200, headers => 'hh', body => 'second', digest => $digest, %arg) }

# Every outcome from every state: "result state", and what is stored in the row afterwards.
my %expected = (
    RESERVED     => { succeeded => 'OK SUCCEEDED', failed => 'OK FAILED_FINAL', unknown => 'OK UNKNOWN', rejected => 'OK NONE', released => 'OK RESERVED' },
    EXECUTING    => { succeeded => 'OK SUCCEEDED', failed => 'OK FAILED_FINAL', unknown => 'OK UNKNOWN', rejected => 'OK NONE', released => 'OK EXECUTING' },
    UNKNOWN      => { succeeded => 'OK SUCCEEDED', failed => 'OK FAILED_FINAL', unknown => 'OK UNKNOWN', rejected => 'OK RESERVED', released => 'STALE UNKNOWN' },
    SUCCEEDED    => { map { $_ => 'STALE SUCCEEDED' } qw(succeeded failed unknown rejected released) },
    FAILED_FINAL => { map { $_ => 'STALE FAILED_FINAL' } qw(succeeded failed unknown rejected released) },
    EXPIRED      => { map { $_ => 'STALE EXPIRED' } qw(succeeded failed unknown rejected released) },
);
for my $state (sort keys %expected) {
    for my $outcome (sort keys %{ $expected{$state} }) {
        subtest "$outcome meets $state" => sub {
            my $operation = record($state);
            my $before = row($operation);
            my $answer = settle($operation, outcome => $outcome);
            is("$answer->{result} $answer->{state}", $expected{$state}{$outcome}, 'answer');
            my $after = row($operation);
            if ($answer->{result} eq 'STALE') {
                is_deeply($after, $before, 'nothing was written');
                is_deeply([ events($operation) ], [], 'no event');
                return;
            }
            is($after ? $after->{status} : 'NONE', $answer->{state}, 'the row is there');
            my $moved = "1 $state > $answer->{state}";
            my $first = $state ne 'UNKNOWN' && $outcome =~ /succeeded|failed|unknown/;
            my $none = $first || $state eq $answer->{state} && $outcome eq 'unknown';
            is_deeply([ events($operation) ], $none ? [] : [$moved], $none ? 'no event' : 'one event');
            return unless $after;
            if ($outcome eq 'released' || $outcome eq 'rejected') {
                is($after->{owner}, undef, 'nobody owns it');
                is($after->{settled_at}, undef, 'it is not settled');
                is($after->{outcome}, $outcome, 'outcome');
                is($d->call('find', key => "k$n")->{lapsed}, 1, 'its lease is over');
                isnt($after->{sweep_at}, '-infinity', 'the sweep finds it by time');
                return;
            }
            is($after->{outcome}, $outcome, 'outcome');
            ok($after->{settled_at}, 'settled');
            is($after->{response_body}, '\\x' . unpack('H*', 'second'), 'response kept');
            is($after->{response_code}, 200, 'status kept');
            is($after->{owner}, $before->{owner}, 'the owner stays');
            if ($outcome eq 'unknown') {
                is($after->{expires_at}, undef, 'never expires');
                is($after->{tombstone_until}, undef, 'nor does its tombstone');
                is($after->{sweep_at}, '-infinity', 'found among what nobody knows');
            }
            else {
                is($pg->value("SELECT expires_at = settled_at + retention FROM idempotency_records WHERE operation_id = '$operation'"), 't', 'expires a retention later');
                is($after->{tombstone_until}, 'infinity', 'and refuses reuse for ever');
                isnt($after->{sweep_at}, '-infinity', 'the sweep finds it by time');
            }
        };
    }
}

subtest 'reuse allowed ends the tombstone' => sub {
    my $operation = record('EXECUTING', reserve => { reuse => 1, retention => 3_600_000, tombstone => 7_200_000 });
    is(settle($operation)->{result}, 'OK', 'settled');
    is($pg->value("SELECT (expires_at - settled_at)::text || ' ' || (tombstone_until - expires_at)::text FROM idempotency_records WHERE operation_id = '$operation'"),
        '01:00:00 02:00:00', 'retention, then tombstone');
};

subtest 'another generation has it' => sub {
    for my $outcome (qw(succeeded failed unknown rejected released)) {
        my $operation = record('EXECUTING', set => 'owner_generation = 2');
        my $before = row($operation);
        my $answer = settle($operation, outcome => $outcome, generation => 1);
        is("$answer->{result} $answer->{state}", 'STALE EXECUTING', "$outcome of the first generation is refused");
        is_deeply(row($operation), $before, 'and changes nothing');
        is(settle($operation, outcome => $outcome, generation => 2)->{result}, 'OK', "$outcome of the second is taken");
    }
};

subtest 'no such operation' => sub {
    for my $outcome (qw(succeeded failed unknown rejected released)) {
        is(settle(uuid(), outcome => $outcome)->{result}, 'NOT_FOUND', $outcome);
    }
    my $operation = record('EXECUTING');
    is(settle($operation, tenant => 'another')->{result}, 'NOT_FOUND', 'of another tenant');
};

subtest 'a rejected record goes only where nothing can have happened' => sub {
    my %stays = ('a later generation' => [ 'owner_generation = 2', 2 ], 'an attempt that was ended' => [ 'attempts = 1', 1 ],
        'an attempt that is open' => [ 'attempts = 1, attempts_open = 1', 1 ]);
    for my $name (sort keys %stays) {
        my ($set, $generation) = @{ $stays{$name} };
        my $operation = record('EXECUTING', set => $set);
        my $answer = settle($operation, outcome => 'rejected', generation => $generation);
        is("$answer->{result} $answer->{state}", 'OK RESERVED', "$name: stays");
        my $row = row($operation);
        is($row->{owner}, undef, "$name: with its lease over");
        is($row->{owner_generation}, $generation, "$name: same generation");
        is($row->{response_body}, undef, "$name: no response");
    }
    my $operation = record('EXECUTING');
    settle($operation, outcome => 'rejected');
    is($d->call('reserve', key => "k$n")->{result}, 'OK', 'what went leaves the key free');
};

subtest 'released with an open attempt is in doubt' => sub {
    my $operation = record('EXECUTING', set => 'attempts = 2, attempts_open = 1');
    my $answer = settle($operation, outcome => 'released');
    is("$answer->{result} $answer->{state}", 'OK UNKNOWN', 'UNKNOWN');
    my $row = row($operation);
    is($row->{outcome}, 'unknown', 'outcome');
    isnt($row->{owner}, undef, 'the owner may still settle it');
    is(settle($operation)->{result}, 'OK', 'and does');
};

subtest 'settled by the backend' => sub {
    my $bare = 'response_code = NULL, response_headers = NULL, response_body = NULL, response_digest = NULL';
    my %state = (succeeded => 'SUCCEEDED', failed => 'FAILED_FINAL');
    for my $backend (sort keys %state) {
        for my $web (qw(succeeded failed unknown rejected released)) {
            my $name = "backend $backend, web server $web";
            my $operation = record($state{$backend}, set => "$bare, settled_at = settled_at - interval '5 s', expires_at = expires_at - interval '5 s'");
            my $before = row($operation);
            my $answer = settle($operation, outcome => $web);
            my $after = row($operation);
            if ($web ne $backend) {
                is("$answer->{result} $answer->{state}", "STALE $state{$backend}", "$name: does not fit");
                is_deeply($after, $before, "$name: nothing was written");
                next;
            }
            is("$answer->{result} $answer->{state}", "OK $state{$backend}", "$name: the response is added");
            is_deeply([ @$after{qw(response_body response_headers response_code)} ], [ '\\x' . unpack('H*', 'second'), '\\x' . unpack('H*', 'hh'), 200 ], "$name: response");
            is_deeply({ map { $_ => $after->{$_} } grep { !/^response/ } keys %$after }, { map { $_ => $before->{$_} } grep { !/^response/ } keys %$before }, "$name: all else stays");
            is_deeply([ events($operation) ], [], "$name: no event");
        }
    }
    my $operation = record('FAILED_FINAL', set => "response_code = 402, response_headers = 'theirs', response_body = '', response_digest = sha256('')");
    is(settle($operation, outcome => 'failed')->{result}, 'STALE', 'a response of its own stays');
    is(row($operation)->{response_body}, '\\x', 'even an empty one');
    $operation = record('SUCCEEDED', set => "$bare, owner_generation = 2");
    is(settle($operation)->{result}, 'STALE', 'another generation adds nothing');
    is(row($operation)->{response_body}, undef, 'at all');
    $operation = record('SUCCEEDED', set => "response_headers = '', response_body = NULL, response_digest = NULL");
    is(settle($operation)->{result}, 'STALE', 'nor is anything added where it is said that none is kept');
};

subtest 'what was given up stays given up' => sub {
    for my $given (qw(rejected released)) {
        my $operation = record('EXECUTING', set => 'attempts = 1');
        settle($operation, outcome => $given);
        my $before = row($operation);
        for my $outcome (qw(succeeded failed unknown)) {
            my $answer = settle($operation, outcome => $outcome);
            is($answer->{result}, 'STALE', "$outcome after $given");
            is_deeply(row($operation), $before, 'changes nothing');
        }
        is(settle($operation, outcome => $given)->{result}, 'OK', "$given again is no harm");
        is(scalar(events($operation)), 1, 'and no second event');
    }
};

subtest 'octets come back as they went' => sub {
    my $all = join '', map { chr } 0 .. 255;
    my %body = ('all octets' => $all, 'many NULs' => "\0" x 1000, empty => '', none => undef, '1 MiB' => ($all x 4096), 'bad UTF-8' => "\xff\xfe\xe9");
    for my $name (sort keys %body) {
        my $operation = record('EXECUTING');
        is(settle($operation, body => $body{$name}, headers => $body{$name}, digest => defined $body{$name} ? $digest : undef)->{result}, 'OK', "$name: stored");
        my $found = $d->call('reserve', key => "k$n");
        is($found->{result}, 'FOUND', "$name: found");
        ok(defined $found->{$_} eq defined $body{$name} && ($found->{$_} // '') eq ($body{$name} // ''), "$name: $_") for qw(body headers);
        is($found->{digest}, defined $body{$name} ? $digest : undef, "$name: digest");
        is($found->{code}, 200, "$name: status");
    }
};

subtest 'a doubt without a response keeps the one there is' => sub {
    my $operation = record('EXECUTING');
    is(settle($operation, outcome => 'unknown')->{result}, 'OK', 'a whole response, and nobody knows');
    is(settle($operation, outcome => 'unknown', body => undef, headers => undef, digest => undef, code => 0)->{result}, 'OK', 'again, without');
    is(row($operation)->{response_body}, '\\x' . unpack('H*', 'second'), 'it is kept');
    is(settle($operation, outcome => 'succeeded', body => undef, headers => undef, digest => undef)->{result}, 'OK', 'a late settlement, too large to keep');
    is(row($operation)->{response_body}, undef, 'has no body of another answer');
    is_deeply([ events($operation) ], ['1 UNKNOWN > SUCCEEDED'], 'one event');
};

subtest 'nobody waits for a lock' => sub {
    my $operation = record('EXECUTING');
    my $backend = $pg->session;
    $backend->run("BEGIN; SELECT 1 FROM idempotency_records WHERE operation_id = '$operation' FOR UPDATE");
    # the server itself tells of whoever has waited for a lock, however short
    $pg->do('ALTER SYSTEM SET log_lock_waits = on');
    $pg->do('ALTER SYSTEM SET deadlock_timeout = 1');
    $pg->do('SELECT pg_reload_conf()');
    my $waits = sub { return scalar(() = $pg->log =~ /still waiting for|acquired \w+ on/g) };
    my $wait = sub { return eval { $pg->do("SET lock_timeout = 50; SELECT 1 FROM idempotency_records WHERE operation_id = '$operation' FOR UPDATE"); 1 } };
    ok(wait_for(sub { !$wait->() && $waits->() }, 5), 'a statement that waits is told of');
    my $before = $waits->();
    for my $outcome (qw(succeeded unknown rejected released)) {
        my $answer = settle($operation, outcome => $outcome, deadline => 500);
        is($answer->{result}, 'UNAVAILABLE', "$outcome: not written by the deadline, and certainly not");
    }
    is($waits->(), $before, 'not one of them has waited: each looks, and looks again');
    $pg->do('ALTER SYSTEM RESET ALL');
    $pg->do('SELECT pg_reload_conf()');
    $d->send('settle', operation => $operation, code => 200, deadline => 5000);
    ok(wait_for(sub { $pg->value(q(SELECT count(*) FROM pg_stat_activity WHERE usename = 'web' AND query LIKE '%idempotency_records%')) }, 5), 'a settlement is tried');
    $backend->run('COMMIT');
    is($d->answer->{result}, 'OK', 'and made when the lock is gone');
};

subtest 'an answer that was lost' => sub {
    my $wire = Idem::Cut->new($pg);
    my $far = Idem::Driver->new(conninfo => $wire->conninfo);
    my %want = (succeeded => 'OK SUCCEEDED', failed => 'OK FAILED_FINAL', unknown => 'OK UNKNOWN', rejected => 'OK NONE', released => 'OK EXECUTING');
    for my $outcome (sort keys %want) {
        my $operation = record('EXECUTING');
        $far->call('heartbeat');
        $wire->arm('cut');
        my $answer = $far->call('settle', operation => $operation, outcome => $outcome, code => 200, body => 'b', digest => $digest, deadline => 5000);
        $wire->done;
        is("$answer->{result} $answer->{state}", $want{$outcome}, "$outcome is recognised as done");
        cmp_ok(scalar(events($operation)), '<=', 1, "$outcome: done once");
    }
    my $operation = record('EXECUTING', set => 'owner_generation = 2');
    $far->call('heartbeat');
    $wire->arm('cut');
    is($far->call('settle', operation => $operation, generation => 2, outcome => 'rejected', deadline => 5000)->{state}, 'RESERVED', 'rejected, and stays');
    $wire->done;
    is_deeply([ events($operation) ], ['2 EXECUTING > RESERVED'], 'once');

    $operation = record('EXECUTING');
    $far->call('heartbeat');
    $wire->arm('mute');
    my $answer = $far->call('settle', operation => $operation, deadline => 500, body => 'b', digest => $digest);
    is($answer->{result}, 'AMBIGUOUS', 'no answer at all: it may be sent again');
    cmp_ok($answer->{ms}, '<', 600, 'in time');
    is($far->call('settle', operation => $operation, body => 'b', digest => $digest)->{result}, 'OK', 'and is taken');
};

subtest 'the row keeps to its rules' => sub {
    is($pg->value(q(SELECT count(*) FROM idempotency_records WHERE (settled_at IS NULL) <> (status IN ('RESERVED', 'EXECUTING'))
        OR (expires_at IS NULL) <> (status IN ('RESERVED', 'EXECUTING', 'UNKNOWN')) OR (expires_at IS NULL) <> (tombstone_until IS NULL)
        OR (sweep_at = '-infinity') <> (status = 'UNKNOWN'))), 0, 'times tell the state');
    is($pg->value(q(SELECT count(*) FROM pg_constraint WHERE conrelid = 'idempotency_records'::regclass AND contype = 'c')), 0, 'without constraints that cost');
    my ($said) = map { eval { $pg->do($_); '' } // $@ } q(UPDATE idempotency_records SET status = 'DONE');
    like($said, qr/idempotency_status/, 'no other state can be written');
};

done_testing;
