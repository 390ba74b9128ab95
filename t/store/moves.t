# Takeover, reuse, doubt, dispatch, withdrawal, heartbeat. CONTRACT sections 1, 4 and 8.
use strict;
use warnings;
use Idem::Cut;
use Idem::Driver;

my $pg = migrated();
my $d = Idem::Driver->new(pg => $pg, set => { owner => uuid(0xd1) });
my $e = Idem::Driver->new(pg => $pg, set => { owner => uuid(0xe1) });
my $n = 0;

# A record of $d's, and what $e sees of it, kept as "seen".
sub record {
    my (%arg) = @_;
    my $key = 'm' . ++$n;
    my $operation = uuid();
    my $reserve = $d->call('reserve', key => $key, operation => $operation, state => 'EXECUTING', effect => 'repeatable', %{ $arg{reserve} || {} });
    die "reserve: $reserve->{result}\n" if $reserve->{result} ne 'OK';
    $pg->do("UPDATE idempotency_records SET $arg{set} WHERE operation_id = '$operation'") if $arg{set};
    $e->call('find', key => $key, as => 'seen');
    return $operation;
}
sub row { my ($operation) = @_; return ($pg->query("SELECT * FROM idempotency_records WHERE operation_id = '$operation'"))[0] }
sub events { my ($operation) = @_; return map { "$_->{generation} $_->{from_status} > $_->{to_status}" } $pg->query("SELECT * FROM idempotency_events WHERE operation_id = '$operation' ORDER BY event_id") }

my %lapse = (
    'the owner has said farewell' => q(DELETE FROM idempotency_owners WHERE owner = '%s'),
    'the owner was silent for its lease' => q(UPDATE idempotency_owners SET seen_at = now() - interval '61 s' WHERE owner = '%s'),
    'it runs for longer than max_run' => q(UPDATE idempotency_records SET owned_at = now() - interval '3601 s' WHERE owner = '%s'),
    'nobody owns it' => q(UPDATE idempotency_records SET owner = NULL WHERE owner = '%s'),
);
my %held = (
    'the owner was seen just now' => q(SELECT '%s'),
    'the owner was seen within its lease' => q(UPDATE idempotency_owners SET seen_at = now() - interval '50 s' WHERE owner = '%s'),
    'it runs for nearly max_run' => q(UPDATE idempotency_records SET owned_at = now() - interval '3500 s' WHERE owner = '%s'),
);

for my $name (sort(keys %lapse), sort keys %held) {
    subtest $name => sub {
        for my $call (qw(take_over mark_unknown)) {
            $d->call('heartbeat');
            my $operation = record();
            is($e->call('find', key => "m$n")->{lapsed}, 0, 'not lapsed before');
            $pg->do(sprintf $lapse{$name} // $held{$name}, uuid(0xd1));
            my $seen = $e->call('find', key => "m$n", as => 'seen');
            is($seen->{lapsed}, exists $lapse{$name} ? 1 : 0, 'seen so');
            is($seen->{lease_left} > 0 ? 1 : 0, exists $lapse{$name} ? 0 : 1, 'and for how long');
            my $before = row($operation);
            my $answer = $e->call($call, seen => 'seen');
            if (exists $held{$name}) {
                is($answer->{result}, 'STALE', "$call is refused");
                is_deeply(row($operation), $before, 'and changes nothing');
                next;
            }
            is($answer->{result}, 'OK', $call);
            my $row = row($operation);
            if ($call eq 'take_over') {
                is($row->{owner}, uuid(0xe1), 'another owner');
                is($row->{owner_generation}, 2, 'the next generation');
                is($answer->{generation}, 2, 'as the answer says');
                is($row->{owner_token}, $answer->{token}, 'another token');
                is($row->{operation_id}, $operation, 'the same operation');
                is($e->call('find', key => "m$n")->{lapsed}, 0, 'a new lease');
                is($d->call('settle', operation => $operation, generation => 1)->{result}, 'STALE', 'the old owner is refused');
                is_deeply([ events($operation) ], ['2 EXECUTING > EXECUTING'], 'an event');
            }
            else {
                is($row->{status}, 'UNKNOWN', 'nobody knows');
                is($row->{sweep_at}, '-infinity', 'and it is found among those');
                is_deeply([ events($operation) ], ['1 EXECUTING > UNKNOWN'], 'an event');
                is($d->call('settle', operation => $operation, generation => 1)->{result}, 'OK', 'its own owner settles it late');
                is_deeply([ events($operation) ], [ '1 EXECUTING > UNKNOWN', '1 UNKNOWN > SUCCEEDED' ], 'with an event');
            }
            is($e->call($call, seen => 'seen')->{result}, 'STALE', 'not twice');
        }
    };
}
$d->call('heartbeat');
my $nobody = 'owner = NULL';

subtest 'what was seen has to be there still' => sub {
    for my $change ('owner_generation = 2', "owner = '" . uuid(99) . "', owned_at = owned_at - interval '2 h'", "status = 'SUCCEEDED', settled_at = now(), expires_at = now(), tombstone_until = now()") {
        for my $call (qw(take_over mark_unknown)) {
            my $operation = record(set => $nobody);
            $pg->do("UPDATE idempotency_records SET $change WHERE operation_id = '$operation'");
            is($e->call($call, seen => 'seen')->{result}, 'STALE', "$call after $change");
            is_deeply([ events($operation) ], [], 'no event');
        }
    }
    my $operation = record(set => $nobody);
    $pg->do("DELETE FROM idempotency_records WHERE operation_id = '$operation'");
    is($e->call($_, seen => 'seen')->{result}, 'STALE', "$_ of a record that is gone") for qw(take_over mark_unknown);
};

subtest 'the stricter effect mode stays' => sub {
    for my $case ([ 'external', 'repeatable', 'external' ], [ 'repeatable', 'external', 'external' ], [ 'transactional', 'repeatable', 'transactional' ]) {
        my ($record, $route, $want) = @$case;
        my $operation = record(reserve => { effect => $record, state => 'RESERVED' }, set => $nobody);
        is($e->call('take_over', seen => 'seen', effect => $route, state => 'RESERVED', lease => 5000, max_run => 9000)->{result}, 'OK', "$record met by $route");
        my $row = row($operation);
        is($row->{effect_mode}, $want, "is $want");
        is("$row->{lease} $row->{max_run}", '00:00:05 00:00:09', 'lease and max_run are the new owner\'s');
        is($row->{retention}, '24:00:00', 'the rules of the record stay');
    }
};

subtest 'an open attempt forbids takeover' => sub {
    my $operation = record(set => "$nobody, attempts = 1, attempts_open = 1");
    is($e->call('take_over', seen => 'seen')->{result}, 'STALE', 'refused');
    is($e->call('mark_unknown', seen => 'seen')->{result}, 'OK', 'in doubt instead');
    record(set => "$nobody, attempts = 1");
    is($e->call('take_over', seen => 'seen')->{result}, 'OK', 'one that was ended does not');
};

subtest 'a lock in the way' => sub {
    for my $call (qw(take_over mark_unknown)) {
        my $operation = record(set => $nobody);
        my $backend = $pg->session;
        $backend->run("BEGIN; SELECT 1 FROM idempotency_records WHERE operation_id = '$operation' FOR UPDATE");
        my $answer = $e->call($call, seen => 'seen');
        is($answer->{result}, 'BUSY', "$call: a backend is committing");
        cmp_ok($answer->{ms}, '<', 300, 'known at once');
        $backend->run('ROLLBACK');
        is($e->call($call, seen => 'seen')->{result}, 'OK', 'free again');
    }
};

subtest 'a fenced writer takes nothing over' => sub {
    my $operation = record(set => $nobody);
    $pg->do('UPDATE idempotency_control SET writer_epoch = 2');
    is($e->call('take_over', seen => 'seen')->{result}, 'FENCED', 'epoch');
    is($e->call('mark_unknown', seen => 'seen')->{result}, 'OK', 'doubt is written all the same');
    is($d->call('settle', operation => $operation)->{result}, 'OK', 'so is a settlement');
    $pg->do('UPDATE idempotency_control SET writer_epoch = 1');
    record(set => $nobody);
    $pg->do('UPDATE idempotency_control SET alias_version = 1');
    is($e->call('take_over', seen => 'seen')->{result}, 'FENCED', 'aliases');
    is($e->call('take_over', seen => 'seen', alias => 1)->{result}, 'OK', 'the right ones');
    $pg->do('UPDATE idempotency_control SET alias_version = 0');
};

subtest 'one of many takes over' => sub {
    my @drivers = map { Idem::Driver->new(pg => $pg) } 1 .. 6;
    for my $round (1 .. 5) {
        my $operation = record(set => $nobody);
        $_->call('find', key => "m$n", as => 'seen') for @drivers;
        $_->send('take_over', seen => 'seen', deadline => 5000) for @drivers;
        my @result = sort map { $_->answer->{result} } @drivers;
        is((grep { $_ eq 'OK' } @result), 1, "round $round: one") or diag("@result");
        is((grep { $_ !~ /^(?:OK|STALE|BUSY)$/ } @result), 0, 'the others are told');
        is(row($operation)->{owner_generation}, 2, 'one generation more');
    }
};

subtest 'a tombstone whose time is over is used again' => sub {
    my $over = "status = 'EXPIRED', outcome = 'succeeded', response_code = 201, response_body = 'x', settled_at = now() - interval '3 d', expires_at = now() - interval '2 d', tombstone_until = now() - interval '1 d', attempts = 1";
    my %other = (fingerprint => 3, recipe => 'new', parts => 'np', retention => 1000, tombstone => 2000, body_limit => 5, lease => 7000, effect => 'external', state => 'EXECUTING');
    my $operation = record(reserve => { reuse => 1 }, set => $over);
    my $new = uuid();
    my $answer = $e->call('take_over', seen => 'seen', use_again => 1, operation => $new, %other);
    is($answer->{result}, 'OK', 'used again');
    is($answer->{generation}, 2, 'the next generation');
    is(row($operation), undef, 'the old operation is gone');
    my $row = row($new);
    my %want = (owner_generation => 2, status => 'EXECUTING', outcome => undef, response_code => undef, response_body => undef, settled_at => undef,
        expires_at => undef, tombstone_until => undef, attempts => 0, effect_mode => 'external', recipe => '\\x' . unpack('H*', 'new'),
        fingerprint => '\\x' . '03' x 32, retention => '00:00:01', tombstone => '00:00:02', body_limit => 5, reuse_allowed => JSON::PP::false, owner => uuid(0xe1));
    is_deeply({ map { $_ => $row->{$_} } keys %want }, \%want, 'everything is the new request\'s');
    is_deeply([ events($operation) ], ['2 EXPIRED > EXECUTING'], 'the old operation has the event');
    is($e->call('settle', operation => $new, generation => 2)->{result}, 'OK', 'and it is settled as any other');

    my %not = ('reuse is refused' => 'reuse_allowed = false', 'the tombstone still runs' => "tombstone_until = now() + interval '1 h'",
        'it has not expired' => "status = 'SUCCEEDED', expires_at = now() + interval '1 h'", 'it is live' => "status = 'EXECUTING', settled_at = NULL, expires_at = NULL, tombstone_until = NULL, owner = NULL",
        'nobody knows' => "status = 'UNKNOWN', expires_at = NULL, tombstone_until = NULL", 'another generation' => 'owner_generation = 5');
    for my $name (sort keys %not) {
        my $kept = record(reserve => { reuse => 1 }, set => $over);
        $pg->do("UPDATE idempotency_records SET $not{$name} WHERE operation_id = '$kept'");
        is($e->call('take_over', seen => 'seen', use_again => 1)->{result}, 'STALE', "not where $name");
        ok(row($kept), 'it stays');
    }
    record(reserve => { reuse => 1 }, set => $over =~ s/EXPIRED/SUCCEEDED/r);
    is($e->call('take_over', seen => 'seen', use_again => 1)->{result}, 'OK', 'expired but unswept is already expired');
};

subtest 'dispatch' => sub {
    my $operation = record(reserve => { state => 'RESERVED' });
    is($d->call('dispatch', operation => $operation, to => 'EXECUTING')->{result}, 'OK', 'RESERVED becomes EXECUTING');
    is(row($operation)->{status}, 'EXECUTING', 'durably');
    is_deeply([ events($operation) ], ['1 RESERVED > EXECUTING'], 'an event');
    is($d->call('dispatch', operation => $operation, to => 'EXECUTING')->{result}, 'OK', 'again is no harm');
    is_deeply([ events($operation) ], ['1 RESERVED > EXECUTING'], 'nor an event');
    is($d->call('dispatch', operation => $operation, to => 'RESERVED')->{result}, 'OK', 'proof that it is ours');
    is(row($operation)->{status}, 'EXECUTING', 'goes nowhere');
    is($e->call('dispatch', operation => $operation, to => 'EXECUTING')->{result}, 'STALE', 'another owner');
    is($d->call('dispatch', operation => $operation, to => 'EXECUTING', generation => 2)->{result}, 'STALE', 'another generation');
    my $reserved = record(reserve => { state => 'RESERVED' });
    is($d->call('dispatch', operation => $reserved, to => 'RESERVED')->{result}, 'OK', 'proof alone');
    is(row($reserved)->{status}, 'RESERVED', 'leaves RESERVED');
    for my $set ("status = 'UNKNOWN', settled_at = now()", "status = 'SUCCEEDED', settled_at = now(), expires_at = now(), tombstone_until = now()", $nobody) {
        is($d->call('dispatch', operation => record(set => $set), to => 'EXECUTING')->{result}, 'STALE', "not with $set");
    }
    is($d->call('dispatch', operation => uuid(), to => 'EXECUTING')->{result}, 'STALE', 'nothing there');
};

subtest 'withdrawal' => sub {
    my $reserve = sub { my (%arg) = @_; my $r = $d->call('reserve', key => 'w' . ++$n, %arg); return ($r->{operation}, $r->{token}) };
    my ($operation, $token) = $reserve->();
    is($d->call('withdraw', operation => $operation, token => uuid())->{result}, 'NOT_FOUND', 'not with another token');
    is($d->call('withdraw', operation => $operation, token => $token, generation => 2)->{result}, 'NOT_FOUND', 'nor another generation');
    is($d->call('withdraw', operation => $operation, token => $token)->{result}, 'OK', 'withdrawn');
    is(row($operation), undef, 'the key is free');
    is_deeply([ events($operation) ], ['1 EXECUTING > NONE'], 'an event');
    is($d->call('withdraw', operation => $operation, token => $token)->{result}, 'NOT_FOUND', 'once');

    ($operation, $token) = $reserve->();
    $d->call('settle', operation => $operation);
    is($d->call('withdraw', operation => $operation, token => $token)->{result}, 'NOT_FOUND', 'nothing that is final');

    ($operation, $token) = $reserve->();
    $pg->do("UPDATE idempotency_records SET status = 'UNKNOWN', settled_at = now(), sweep_at = '-infinity' WHERE operation_id = '$operation'");
    is($d->call('withdraw', operation => $operation, token => $token)->{result}, 'OK', 'what others took for lost');
    my $row = row($operation);
    is("$row->{status} " . ($row->{owner} // 'nobody'), 'RESERVED nobody', 'has provably done nothing');
    isnt($row->{sweep_at}, '-infinity', 'and is no doubt any more');

    my $taken = record(set => $nobody);
    my $over = $e->call('take_over', seen => 'seen', effect => 'repeatable');
    is($e->call('withdraw', operation => $taken, token => $over->{token}, generation => 2)->{result}, 'OK', 'a takeover is withdrawn');
    $row = row($taken);
    is("$row->{status} $row->{owner_generation} " . ($row->{owner} // 'nobody'), 'EXECUTING 2 nobody', 'what the first generation did stays what it was');

    $taken = record(reserve => { effect => 'external', state => 'RESERVED' }, set => $nobody);
    $over = $e->call('take_over', seen => 'seen', effect => 'external', state => 'EXECUTING');
    is($e->call('withdraw', operation => $taken, token => $over->{token}, generation => 2)->{result}, 'OK', 'an external one');
    is(row($taken)->{status}, 'RESERVED', 'is as free as it was');
};

subtest 'heartbeat and farewell' => sub {
    my $f = Idem::Driver->new(pg => $pg, heartbeat => 0, set => { owner => uuid(0xf1) });
    my $owner = sub { return ($pg->query("SELECT *, now() - seen_at < interval '1 s' AS fresh FROM idempotency_owners WHERE owner = '" . uuid(0xf1) . "'"))[0] };
    is($f->call('heartbeat')->{result}, 'OK', 'known');
    my $row = $owner->();
    is($row->{pid}, $f->{pid}, 'with its process');
    is($row->{host}, 'localhost', 'and host');
    $pg->do("UPDATE idempotency_owners SET seen_at = now() - interval '1 h', started_at = now() - interval '2 h'");
    is($f->call('heartbeat')->{result}, 'OK', 'seen again');
    $row = $owner->();
    ok($row->{fresh}, 'by the clock of the store');
    like($row->{started_at}, qr/^\d/, 'since it started');
    is($f->call('farewell')->{result}, 'OK', 'farewell');
    is($owner->(), undef, 'gone');
    is($f->call('farewell')->{result}, 'OK', 'twice is no harm');
};

subtest 'an answer that was lost' => sub {
    my $wire = Idem::Cut->new($pg);
    my $far = Idem::Driver->new(conninfo => $wire->conninfo);
    my %prepare = (
        take_over => sub { record(set => $nobody) }, mark_unknown => sub { record(set => $nobody) },
        use_again => sub { record(reserve => { reuse => 1 }, set => "status = 'EXPIRED', settled_at = now(), expires_at = now(), tombstone_until = now()") },
    );
    for my $name (sort keys %prepare) {
        my $operation = $prepare{$name}->();
        $far->call('find', key => "m$n", as => 'seen');
        $wire->arm('cut');
        my $answer = $far->call($name eq 'use_again' ? 'take_over' : $name, seen => 'seen', deadline => 5000, use_again => $name eq 'use_again' ? 1 : 0);
        $wire->done;
        is($answer->{result}, 'OK', "$name is recognised as done");
        is(scalar(events($operation)), 1, 'it was done once');
    }
};

done_testing;
