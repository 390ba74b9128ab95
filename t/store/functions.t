# The functions that a backend calls in its own transaction. CONTRACT sections 4, 6 and 7.
use strict;
use warnings;
use Digest::SHA ();
use Idem::Driver;

my $pg = migrated();
$pg->do('CREATE ROLE app LOGIN IN ROLE idempotency_backend; CREATE TABLE orders (operation uuid, item text); GRANT ALL ON orders TO app');
my $d = Idem::Driver->new(pg => $pg);
my $n = 0;

sub record {
    my (%arg) = @_;
    my $operation = uuid();
    my $reserve = $d->call('reserve', key => 'f' . ++$n, operation => $operation, state => 'RESERVED', effect => 'transactional', %{ $arg{reserve} || {} });
    die "reserve: $reserve->{result}\n" if $reserve->{result} ne 'OK';
    $pg->do("UPDATE idempotency_records SET $arg{set} WHERE operation_id = '$operation'") if $arg{set};
    return $operation;
}
sub row { my ($operation) = @_; return ($pg->query("SELECT * FROM idempotency_records WHERE operation_id = '$operation'"))[0] }
sub events { my ($operation) = @_; return map { "$_->{generation} $_->{from_status} > $_->{to_status} by $_->{actor}" } $pg->query("SELECT * FROM idempotency_events WHERE operation_id = '$operation' ORDER BY event_id") }

# What the application says to the database; SQLSTATE where it was refused, "" where not.
my ($answer, $message);
sub app {
    my ($sql) = @_;
    ($answer, $message) = ('', '');
    eval { $answer = $pg->psql("\\set VERBOSITY verbose\n$sql", user => 'app'); chomp $answer; 1 } and return '';
    $message = $@;
    return $@ =~ /(?:ERROR|FATAL):  (\w{5}):/ ? $1 : "? $@";
}

subtest 'one transaction' => sub {
    my $operation = record();
    is(app("BEGIN; INSERT INTO orders VALUES ('$operation', 'book'); SELECT idempotency_settle('$operation', 1, 'succeeded', 201, '{\"Content-Type\": \"text/plain\"}', 'ordered'); COMMIT"), '', 'settled');
    my $row = row($operation);
    is("$row->{status} $row->{outcome} $row->{response_code}", 'SUCCEEDED succeeded 201', 'with the order');
    is($row->{response_digest}, '\\x' . Digest::SHA::sha256_hex('ordered'), 'digest of the body');
    is($pg->value("SELECT expires_at = settled_at + retention AND tombstone_until = 'infinity' FROM idempotency_records WHERE operation_id = '$operation'"), 't', 'times');
    is_deeply([ events($operation) ], [], 'a first settlement makes no event');
    my $found = $d->call('reserve', key => "f$n");
    is("$found->{result} $found->{state} $found->{body}", 'FOUND SUCCEEDED ordered', 'and the next request finds it');

    $operation = record();
    is(app("BEGIN; INSERT INTO orders VALUES ('$operation', 'book'); SELECT idempotency_settle('$operation', 1, 'succeeded'); ROLLBACK"), '', 'rolled back');
    is(row($operation)->{status}, 'RESERVED', 'nothing settled');
    is($pg->value("SELECT count(*) FROM orders WHERE operation = '$operation'"), 0, 'nothing ordered');

    $pg->do("UPDATE idempotency_records SET owner = NULL WHERE operation_id = '$operation'");
    $d->call('find', key => "f$n", as => 'seen');
    is($d->call('take_over', seen => 'seen', state => 'RESERVED', effect => 'transactional')->{result}, 'OK', 'somebody takes over');
    is(app("BEGIN; INSERT INTO orders VALUES ('$operation', 'book'); SELECT idempotency_settle('$operation', 1, 'succeeded'); COMMIT"), 'IDEM1', 'the old generation is refused');
    is($pg->value("SELECT count(*) FROM orders WHERE operation = '$operation'"), 0, 'and what it did is rolled back');
    is(app("SELECT idempotency_settle('$operation', 2, 'succeeded')"), '', 'the new one settles');
};

subtest 'while a backend is committing' => sub {
    my $operation = record(set => 'owner = NULL');
    my $backend = $pg->session(user => 'app');
    $backend->run("BEGIN; SELECT idempotency_settle('$operation', 1, 'succeeded', 200, '{}', 'ok')");
    $d->call('find', key => "f$n", as => 'seen');
    my $busy = $d->call('take_over', seen => 'seen', deadline => 2000);
    is($busy->{result}, 'BUSY', 'nobody takes it over');
    cmp_ok($busy->{ms}, '<', 500, 'and is not kept waiting');
    is($d->call('reserve', key => "f$n")->{state}, 'RESERVED', 'readers are not either');
    $backend->run('COMMIT');
    is($d->call('take_over', seen => 'seen')->{result}, 'STALE', 'then it is settled');
    for my $call ("outbox_put('%s', 1, 't', '')", "effect_begin('%s', 1, 'e', 'p')") {
        my $other = record(set => 'owner = NULL');
        $d->call('find', key => "f$n", as => 'seen');
        $backend->run("BEGIN; SELECT idempotency_" . sprintf($call, $other));
        is($d->call('take_over', seen => 'seen')->{result}, 'BUSY', "the same with $call");
        $backend->run('ROLLBACK');
        is($d->call('take_over', seen => 'seen')->{result}, 'OK', 'and not after its rollback');
    }
};

subtest 'outcomes' => sub {
    my %to = (succeeded => 'SUCCEEDED', Failed => 'FAILED_FINAL', UNKNOWN => 'UNKNOWN');
    for my $outcome (sort keys %to) {
        my $operation = record();
        is(app("SELECT idempotency_settle('$operation', 1, '$outcome')"), '', $outcome);
        my $row = row($operation);
        is($row->{status}, $to{$outcome}, 'state');
        is($row->{outcome}, lc $outcome, 'outcome');
        is($row->{response_headers}, undef, 'the response is on its way');
        isnt($row->{owner}, undef, 'with its owner');
        is($row->{sweep_at} eq '-infinity' ? 1 : 0, $outcome eq 'UNKNOWN' ? 1 : 0, 'found among what nobody knows') ;
    }
    my $operation = record();
    is(app("SELECT idempotency_settle('$operation', 1, 'rejected')"), '', 'rejected');
    is(row($operation), undef, 'the key is free');
    is_deeply([ events($operation) ], ['1 RESERVED > NONE by backend:app'], 'with an event');
    is($d->call('settle', operation => $operation, outcome => 'failed')->{result}, 'NOT_FOUND', 'and the web server has nothing left to settle');
    for my $set ('owner_generation = 2', 'attempts = 1') {
        $operation = record(set => $set);
        my $generation = $set =~ /2/ ? 2 : 1;
        app("SELECT idempotency_settle('$operation', $generation, 'rejected')");
        my $row = row($operation);
        is("$row->{status} " . ($row->{owner} // 'nobody'), 'RESERVED nobody', "$set: it stays, with its lease over");
        is($d->call('settle', operation => $operation, generation => $generation, outcome => 'succeeded')->{result}, 'STALE', 'and the web server cannot make it anything else');
    }
    $operation = record(set => "status = 'UNKNOWN', settled_at = now(), sweep_at = '-infinity'");
    is(app("SELECT idempotency_settle('$operation', 1, 'succeeded')"), '', 'a late word of the generation that has it');
    is(row($operation)->{status}, 'SUCCEEDED', 'counts');
    isnt(row($operation)->{sweep_at}, '-infinity', 'and ends the doubt');
    is_deeply([ events($operation) ], ['1 UNKNOWN > SUCCEEDED by backend:app'], 'with an event');
};

subtest 'errors' => sub {
    my $operation = record(reserve => { body_limit => 10 });
    my $final = record();
    app("SELECT idempotency_settle('$final', 1, 'succeeded')");
    my $doubt = record(set => "status = 'UNKNOWN', settled_at = now()");
    my $unknown = uuid();
    my @case = (
        [ "settle('$operation', 2, 'succeeded')", 'IDEM1' ], [ "settle('$operation', 0, 'succeeded')", 'IDEM1' ], [ "settle('$operation', NULL, 'succeeded')", 'IDEM1' ],
        [ "settle('$unknown', 1, 'succeeded')", 'IDEM2' ], [ "settle(NULL, 1, 'succeeded')", 'IDEM2' ],
        [ "settle('$final', 1, 'succeeded')", 'IDEM3' ], [ "settle('$final', 1, 'rejected')", 'IDEM3' ], [ "settle('$final', 2, 'succeeded')", 'IDEM1' ],
        [ "settle('$operation', 1, 'succeeded', 200, '{}', '12345678901')", 'IDEM4' ],
        [ "settle('$operation', 1, 'perhaps')", 'IDEM5' ], [ "settle('$operation', 1, NULL)", 'IDEM5' ], [ "settle('$operation', 1, 'released')", 'IDEM5' ],
        [ "settle('$operation', 1, 'succeeded', 99)", 'IDEM5' ], [ "settle('$operation', 1, 'succeeded', NULL, NULL, 'b')", 'IDEM5' ],
        [ "settle('$operation', 1, 'succeeded', 200, '[]')", 'IDEM5' ], [ "settle('$operation', 1, 'succeeded', 200, '{\"a b\": \"c\"}')", 'IDEM5' ],
        [ "settle('$operation', 1, 'succeeded', 200, '{\"a\": \"x\\r\\ny: z\"}')", 'IDEM5' ], [ "settle('$operation', 1, 'succeeded', 200, '{\"a\": null}')", 'IDEM5' ],
        [ "settle('$operation', 1, 'succeeded', 200, '{\"a\": \"x\\u0001y\"}')", 'IDEM5' ],
        [ "settle('$operation', 1, 'succeeded', 200, (SELECT jsonb_object_agg('h' || i, 'v') FROM generate_series(1, 257) i))", 'IDEM4' ],
        [ "outbox_put('$operation', 2, 't', '')", 'IDEM1' ], [ "outbox_put('$unknown', 1, 't', '')", 'IDEM2' ], [ "outbox_put('$final', 1, 't', '')", 'IDEM3' ],
        [ "outbox_put('$operation', 1, '', '')", 'IDEM5' ], [ "outbox_put('$operation', 1, repeat('t', 256), '')", 'IDEM5' ], [ "outbox_put('$operation', 1, 't', NULL)", 'IDEM5' ],
        [ "outbox_put('$operation', 1, 't', convert_to(repeat('x', 16777217), 'UTF8'))", 'IDEM4' ],
        [ "effect_begin('$operation', 2, 'e', 'p')", 'IDEM1' ], [ "effect_begin('$unknown', 1, 'e', 'p')", 'IDEM2' ], [ "effect_begin('$final', 1, 'e', 'p')", 'IDEM3' ],
        [ "effect_begin('$doubt', 1, 'e', 'p')", 'IDEM3' ], [ "effect_begin('$operation', 1, '', 'p')", 'IDEM5' ], [ "effect_begin('$operation', 1, 'e', NULL)", 'IDEM5' ],
        [ "effect_bind(0, 'h')", 'IDEM2' ], [ "effect_end(0, 'failed')", 'IDEM2' ], [ "effect_end(0, 'done')", 'IDEM5' ], [ "effect_bind(0, '')", 'IDEM5' ],
    );
    for my $case (@case) {
        my ($call, $want) = @$case;
        is(app("SELECT idempotency_$call"), $want, "$want: " . substr($call, 0, 90)) or diag($message);
    }
    is(row($operation)->{status}, 'RESERVED', 'none of them has written anything');
    is($pg->value('SELECT (SELECT count(*) FROM idempotency_outbox) + (SELECT count(*) FROM idempotency_effects)'), 0, 'anywhere');
};

subtest 'headers are laid out as the web server does' => sub {
    my $layout = sub { my (@f) = @_; join '', "\x01", pack('N', 0), pack('N', @f / 2), map { pack('N/a*', $_) } @f };
    my $operation = record();
    app("SELECT idempotency_settle('$operation', 1, 'succeeded', 201, '{\"Location\": \"/orders/7\", \"Link\": [\"<a>\", \"<b>\"], \"X-Count\": 7, \"ETag\": \"\\\"\\u00e9\\\"\"}', '')");
    my $found = $d->call('find', key => "f$n");
    is($found->{headers}, $layout->('ETag', "\"\xc3\xa9\"", 'Link', '<a>', 'Link', '<b>', 'X-Count', '7', 'Location', '/orders/7') , 'fields') or diag(unpack 'H*', $found->{headers});
    is($found->{body}, '', 'an empty body is an empty body');
    $operation = record();
    app("SELECT idempotency_settle('$operation', 1, 'succeeded', 204, NULL, '')");
    is($d->call('find', key => "f$n")->{headers}, $layout->(), 'no fields');
    $operation = record();
    app("SELECT idempotency_settle('$operation', 1, 'succeeded', 200)");
    is($d->call('find', key => "f$n")->{headers}, undef, 'with a status alone the response is on its way');
};

subtest 'the response of the web server becomes the snapshot' => sub {
    my $operation = record();
    app("SELECT idempotency_settle('$operation', 1, 'succeeded')");
    my $settle = $d->call('settle', operation => $operation, outcome => 'succeeded', code => 201, headers => 'hh', body => 'answer', digest => 'd' x 32);
    is("$settle->{result} $settle->{state}", 'OK SUCCEEDED', 'added');
    my $found = $d->call('reserve', key => "f$n");
    is("$found->{state} $found->{code} $found->{body}", 'SUCCEEDED 201 answer', 'and found');
};

subtest 'messages' => sub {
    my $operation = record();
    is(app("BEGIN; SELECT idempotency_outbox_put('$operation', 1, 'order.made', '\\x00ff'); SELECT idempotency_settle('$operation', 1, 'succeeded'); COMMIT"), '', 'put and settled');
    my ($id) = $answer =~ /(\d+)/;
    my ($message) = $pg->query("SELECT * FROM idempotency_outbox WHERE message_id = $id");
    is("$message->{topic} $message->{payload} $message->{operation_id} $message->{generation} $message->{tenant_id}", "order.made \\x00ff $operation 1 t", 'as it was put');
    $operation = record();
    app("BEGIN; SELECT idempotency_outbox_put('$operation', 1, 'x', ''); ROLLBACK");
    is($pg->value("SELECT count(*) FROM idempotency_outbox WHERE operation_id = '$operation'"), 0, 'nothing of a transaction that was rolled back');
};

subtest 'effects' => sub {
    my $operation = record();
    is(app("SELECT effect_id, downstream_key, handle IS NULL, outcome IS NULL FROM idempotency_effect_begin('$operation', 1, 'charge', 'bank')"), '', 'begun');
    my ($id, $key, $no_handle, $no_outcome) = split /\|/, $answer;
    is("$no_handle $no_outcome", 't t', 'fresh');
    my $hash = Digest::SHA::sha256('mod_idempotency downstream key' . pack('H*', $operation =~ tr/-//dr));
    vec($hash, 6, 8) = vec($hash, 6, 8) & 15 | 128;
    vec($hash, 8, 8) = vec($hash, 8, 8) & 63 | 128;
    is($key, join('-', unpack 'H8H4H4H4H12', $hash), 'with the downstream key of the operation');
    my $row = row($operation);
    is("$row->{status} $row->{attempts} $row->{attempts_open}", 'EXECUTING 1 1', 'the record is EXECUTING');
    is_deeply([ events($operation) ], ['1 RESERVED > EXECUTING by backend:app'], 'with an event');
    my $found = $d->call('find', key => "f$n", as => 'seen');
    is("$found->{attempts} $found->{attempt_open}", '1 1', 'the web server sees it');

    is(app("SELECT * FROM idempotency_effect_begin('$operation', 1, 'charge', 'bank')"), '', 'again');
    is((split /\|/, $answer)[0], $id, 'is the same attempt');
    is(row($operation)->{attempts_open}, 1, 'counted once');
    app("SELECT effect_id, downstream_key FROM idempotency_effect_begin('$operation', 1, 'mail', 'bank')");
    my ($id2, $key2) = split /\|/, $answer;
    isnt($key2, $key, 'another effect has another key');
    like($key2, qr/^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/, 'a UUIDv8 too');
    is(app("SELECT idempotency_effect_bind($id, 'ch_1')"), '', 'bound');
    is(app("SELECT idempotency_effect_end($id2, 'unknown')"), '', 'nobody knows of the mail');
    is(row($operation)->{attempts_open}, 2, 'so it is still open');
    is(app("SELECT idempotency_effect_end($id2, 'Failed')"), '', 'now somebody does');
    is(app("SELECT idempotency_effect_end($id2, 'failed')"), '', 'twice is no harm');
    is(app("SELECT idempotency_effect_end($id2, 'succeeded')"), 'IDEM3', 'another word is');
    is(row($operation)->{attempts_open}, 1, 'one is open');

    $pg->do("UPDATE idempotency_records SET owner = NULL WHERE operation_id = '$operation'");
    $d->call('find', key => "f$n", as => 'seen');
    is($d->call('take_over', seen => 'seen')->{result}, 'STALE', 'nobody takes over with an attempt open');
    is(app("SELECT idempotency_effect_end($id, 'succeeded')"), '', 'ended');
    is($d->call('take_over', seen => 'seen', state => 'RESERVED')->{result}, 'OK', 'then somebody does');
    is(app("SELECT idempotency_effect_bind($id, 'x')"), 'IDEM1', 'the old generation is refused');
    is(app("SELECT idempotency_effect_end($id, 'succeeded')"), 'IDEM1', 'everywhere');
    is(app("SELECT effect_id, downstream_key, handle, outcome FROM idempotency_effect_begin('$operation', 2, 'charge', 'bank')"), '', 'the new one begins the same effect');
    is($answer, "$id|$key|ch_1|succeeded", 'and gets the earlier key, handle and outcome');
    is(row($operation)->{attempts_open}, 0, 'what succeeded is not open again');
    is(app("SELECT effect_id, downstream_key, handle, outcome FROM idempotency_effect_begin('$operation', 2, 'mail', 'bank')"), '', 'what failed');
    is($answer, "$id2|$key2||failed", 'with the earlier key');
    is(row($operation)->{attempts_open}, 1, 'is begun again');
    is(row($operation)->{attempts}, 2, 'as the same attempt');

    $operation = record();
    is(app("SELECT * FROM idempotency_effect_begin('$operation', 1, 'charge', 'bank', true)"), '', 'a replayable one');
    ($row) = row($operation);
    is("$row->{attempts} $row->{attempts_open}", '1 0', 'is no doubt');
    $pg->do("UPDATE idempotency_records SET owner = NULL WHERE operation_id = '$operation'");
    $d->call('find', key => "f$n", as => 'seen');
    is($d->call('take_over', seen => 'seen')->{result}, 'OK', 'and can be taken over');
    is($d->call('settle', operation => $operation, generation => 2, outcome => 'rejected')->{state}, 'RESERVED', 'a record with attempts is not removed');
};

subtest 'who may call' => sub {
    my $operation = record();
    for my $sql ('SELECT * FROM idempotency_records', 'SELECT * FROM idempotency_control', 'SELECT * FROM idempotency_outbox', 'UPDATE idempotency_effects SET handle = $$x$$',
        "SELECT idempotency_lock('$operation', 1)", "SELECT idempotency_event(NULL, 'x', 'y')", "SELECT idempotency_downstream_key('$operation', '')", "SELECT idempotency_lock_effect(1)") {
        is(app($sql), '42501', "not the backend: $sql");
    }
    $pg->do('CREATE ROLE somebody LOGIN');
    for my $function ("settle('$operation', 1, 'succeeded')", "outbox_put('$operation', 1, 't', '')", "effect_begin('$operation', 1, 'e', 'p')", "effect_bind(1, 'h')", "effect_end(1, 'failed')") {
        for my $user ('somebody', 'web') {
            ok(!eval { $pg->do("SELECT idempotency_$function", user => $user); 1 }, "not $user: $function");
        }
    }
    $pg->do('GRANT TEMP ON DATABASE postgres TO app; CREATE SCHEMA app AUTHORIZATION app');
    is(app("CREATE TEMP TABLE idempotency_records (x int); CREATE TABLE app.idempotency_records (x int); SET search_path = app, pg_temp, public; SELECT idempotency_settle('$operation', 1, 'succeeded')"), '', 'with tables of the same name in front');
    is(row($operation)->{status}, 'SUCCEEDED', 'the registry is the registry');
};

done_testing;
