# What age does to records, and what the death of a process leaves behind. CONTRACT sections 4 and 8.
use strict;
use warnings;
use Idem::Driver;
use JSON::PP;

my $pg = migrated(settings => { shared_preload_libraries => 'auto_explain', 'auto_explain.log_min_duration' => 0,
    'auto_explain.log_nested_statements' => 'on', 'auto_explain.log_level' => 'log', log_min_messages => 'warning' });
$pg->do('CREATE ROLE op LOGIN IN ROLE idempotency_admin');

# Plans of what the tool ran since a mark.
my $mark = 0;
sub plans { my $log = $pg->log; my $new = substr $log, $mark; $mark = length $log; return join '', grep { /idempotencyctl LOG:/ } split /^(?=\d{4}-\d\d-)/m, $new }

# One record; what is not said is that of a SUCCEEDED one a day from its end. Values are SQL.
my $made = 0;
sub record {
    my ($key, %value) = @_;
    my $operation = uuid(++$made);
    my %row = (scope_version => q('v1'), tenant_id => q('t'), principal_id => q('p'), route => q('r'), api_revision => q('1'), ns => q('u:'),
        idem_key => "'$key'", contract => q('c'), fingerprint => q(sha256('')), recipe => q(''), fingerprint_parts => q(''),
        operation_id => "'$operation'", owner_generation => 1, owner => 'NULL', owner_token => 'gen_random_uuid()', owned_at => 'now()',
        lease => q('1 min'), max_run => q('1 h'), writer_epoch => 1, effect_mode => q('external'), retention => q('1 day'), tombstone => q('1 day'),
        reuse_allowed => 'false', body_limit => 0, attempts => 0, attempts_open => 0, status => q('SUCCEEDED'), outcome => q('succeeded'),
        response_code => 201, response_headers => q('h'), response_body => q('body'), response_digest => q(sha256('body')), created_at => 'now()',
        settled_at => 'now()', expires_at => q(now() + interval '1 day'), tombstone_until => q('infinity'), sweep_at => q(now() - interval '1 s'), %value);
    my @names = sort keys %row;
    $pg->do(sprintf 'INSERT INTO idempotency_records (%s) VALUES (%s)', join(', ', @names), join(', ', @row{@names}));
    return $operation;
}
my %live = (settled_at => 'NULL', expires_at => 'NULL', tombstone_until => 'NULL', outcome => 'NULL', response_code => 'NULL', response_headers => 'NULL',
    response_body => 'NULL', response_digest => 'NULL');
my $owner = q('10000000-0000-4000-8000-000000000001');
my $dead = q('10000000-0000-4000-8000-000000000002');
sub beat { $pg->do("INSERT INTO idempotency_owners VALUES ($owner, 'h', 1, now(), now()) ON CONFLICT (owner) DO UPDATE SET seen_at = now()") }
sub row { my ($key) = @_; return ($pg->query("SELECT *, sweep_at = '-infinity' AS never, sweep_at = 'infinity' AS ever, sweep_at = expires_at AS at_expiry, sweep_at = tombstone_until AS at_end FROM idempotency_records WHERE idem_key = '$key'"))[0] }
sub sweep {
    my ($status, $said) = ctl($pg, { user => 'op' }, 'sweep', '--json');
    is($status, 0, 'swept') or diag($said);
    return decode_json($said);
}
sub story { my ($operation) = @_; return join ', ', map { "$_->{from_status} $_->{to_status} $_->{actor}" } $pg->query("SELECT * FROM idempotency_events WHERE operation_id = '$operation' ORDER BY event_id") }

subtest 'the fate of a record' => sub {
    beat();
    my $ago = q(now() - interval '2 days');
    my %id = (
        final => record('final'),
        expired => record('expired', expires_at => q(now() - interval '1 s')),
        failed => record('failed', status => q('FAILED_FINAL'), outcome => q('failed'), response_code => 402, expires_at => 'now()', reuse_allowed => 'true', tombstone_until => q(now() + interval '1 day')),
        tombstone => record('tombstone', status => q('EXPIRED'), expires_at => $ago),
        free => record('free', status => q('EXPIRED'), expires_at => $ago, reuse_allowed => 'true', tombstone_until => q(now() - interval '1 s')),
        running => record('running', %live, status => q('EXECUTING'), owner => $owner),
        lapsed => record('lapsed', %live, status => q('EXECUTING'), owner => $dead),
        hung => record('hung', %live, status => q('EXECUTING'), owner => $owner, owned_at => q(now() - interval '61 min')),
        repeatable => record('repeatable', %live, status => q('EXECUTING'), owner => $dead, effect_mode => q('repeatable')),
        attempted => record('attempted', %live, status => q('EXECUTING'), owner => $dead, attempts => 1, attempts_open => 1, effect_mode => q('repeatable')),
        forgotten => record('forgotten', %live, status => q('EXECUTING'), owner => $dead, effect_mode => q('repeatable'), owned_at => q(now() - interval '99 days')),
        begun => record('begun', %live, status => q('RESERVED'), owner => $dead, attempts => 1, attempts_open => 1, effect_mode => q('transactional')),
        reserved => record('reserved', %live, status => q('RESERVED'), owner => $dead, owned_at => 'now()'),
        abandoned => record('abandoned', %live, status => q('RESERVED'), owner => $dead, owned_at => $ago),
        released => record('released', %live, status => q('RESERVED'), owner_generation => 2, owned_at => $ago),
        unknown => record('unknown', status => q('UNKNOWN'), outcome => q('unknown'), expires_at => 'NULL', tombstone_until => 'NULL', sweep_at => q('-infinity'), created_at => q(now() - interval '9 years')),
    );
    $pg->do("INSERT INTO idempotency_events (tenant_id, operation_id, generation, from_status, to_status, actor) VALUES ('t', '$id{free}', 1, 'SUCCEEDED', 'EXPIRED', 'sweep')");
    $pg->do("INSERT INTO idempotency_effects (tenant_id, operation_id, generation, effect, provider, downstream_key, replayable, begun_at) VALUES ('t', '$id{free}', 1, 'e', 'p', 'k', false, now())");
    my $sums = sweep();
    is_deeply([ @$sums{qw(expired removed unknown)} ], [ 3, 2, 4 ], 'what was done') or diag(explain($sums));
    ok(row('final')->{at_expiry} && row('final')->{response_body}, 'a final not yet expired is looked at when it does');
    for (qw(expired failed)) {
        my $row = row($_);
        is($row->{status}, 'EXPIRED', "$_: a tombstone");
        is_deeply([ @$row{qw(response_headers response_body)} ], [ undef, undef ], 'its answer is gone');
        ok($row->{response_digest} && $row->{fingerprint}, 'what it is known by is not');
    }
    is_deeply([ @{ row('failed') }{qw(outcome response_code)} ], [ 'failed', 402 ], 'nor what became of it');
    ok(row('failed')->{at_end}, 'looked at again when it may be used anew');
    ok(row('expired')->{ever}, 'or never, where it may not');
    is(story($id{expired}), 'SUCCEEDED EXPIRED sweep' =~ s/sweep/ctl:op/r, 'with an event');
    is(row('tombstone')->{status}, 'EXPIRED', 'a tombstone that nobody may replace stays');
    is(row('free'), undef, 'one whose time is over is gone');
    is($pg->value("SELECT (SELECT count(*) FROM idempotency_events WHERE operation_id = '$id{free}') + (SELECT count(*) FROM idempotency_effects WHERE operation_id = '$id{free}')"), 0, 'with its story');
    is(row('running')->{status}, 'EXECUTING', 'what runs stays');
    for (qw(lapsed hung begun attempted)) {
        is(row($_)->{status}, 'UNKNOWN', "$_: may have had an effect");
        ok(row($_)->{never}, 'never looked at by age');
        like(story($id{$_}), qr/UNKNOWN ctl:op\z/, 'with an event');
    }
    is(row($_)->{status}, 'EXECUTING', "$_: what may be run again waits for it, however long") for qw(repeatable forgotten);
    is(row('reserved')->{status}, 'RESERVED', 'what has not begun waits too');
    is(row('abandoned'), undef, 'but not for ever: nothing had happened, nothing is left');
    is(row('released')->{status}, 'EXPIRED', 'in a later generation a tombstone is');
    is(row('released')->{outcome}, 'rejected', 'that says so');
    is(row('unknown')->{status}, 'UNKNOWN', 'what nobody knows stays as it is');
    $sums = sweep();
    is_deeply([ @$sums{qw(looked_at expired removed unknown)} ], [ 0, 0, 0, 0 ], 'a second time: nothing is due');
};

subtest 'the story of a record that is gone before its tombstone' => sub {
    $pg->do('TRUNCATE idempotency_records, idempotency_events, idempotency_effects');
    my %short = (retention => q('1 h'), tombstone => q('2 h'), owner => $owner);
    my $d = Idem::Driver->new(pg => $pg);
    my %id = (
        cancelled => record('cancelled', %live, %short, status => q('RESERVED'), sweep_at => q(now() + interval '1 h')),
        rejected => record('rejected', %live, %short, status => q('EXECUTING'), sweep_at => q(now() + interval '1 h')),
        backend => record('backend', %live, %short, status => q('EXECUTING'), sweep_at => q(now() + interval '1 h')),
        lives => record('lives', %live, %short, status => q('EXECUTING'), sweep_at => q(now() + interval '1 h')),
    );
    is((ctl($pg, { user => 'op' }, 'cancel', $id{cancelled}))[0], 0, 'cancelled');
    is($d->call('settle', tenant => 't', operation => $id{rejected}, generation => 1, outcome => 'rejected')->{result}, 'OK', 'rejected');
    $pg->do("SELECT idempotency_settle('$id{backend}', 1, 'rejected')");
    $pg->do("INSERT INTO idempotency_events (tenant_id, operation_id, generation, from_status, to_status, actor) VALUES ('t', '$id{rejected}', 1, 'RESERVED', 'EXECUTING', 'x'), ('t', '$id{lives}', 1, 'RESERVED', 'EXECUTING', 'x')");
    for (qw(cancelled rejected backend)) {
        is($pg->value("SELECT count(*) FROM idempotency_records WHERE operation_id = '$id{$_}'"), 0, "$_: the record is gone");
        is($pg->value("SELECT prune_at - at FROM idempotency_events WHERE operation_id = '$id{$_}' AND to_status = 'NONE'"), '03:00:00', 'its story is told for its retention and tombstone');
    }
    sweep();
    like(story($id{$_}), qr/ NONE /, "$_: until then it stays") for qw(cancelled rejected backend);
    $pg->do("UPDATE idempotency_events SET at = at - interval '3 h', prune_at = prune_at - interval '3 h'");
    is(sweep()->{looked_at}, 3, 'then');
    is(story($id{$_}), '', "$_: it is gone, all of it") for qw(cancelled rejected backend);
    like(story($id{lives}), qr/EXECUTING/, 'that of a record that lives is not');
    $pg->do(q(INSERT INTO idempotency_events (tenant_id, operation_id, generation, from_status, to_status, actor, prune_at)
        SELECT 't', gen_random_uuid(), 1, 'RESERVED', 'NONE', 'x', now() FROM generate_series(1, 1000)));
    plans();
    sweep();
    is($pg->value('SELECT count(*) FROM idempotency_events'), 1, 'many, in several batches');
    like(plans(), qr/Index Scan using idempotency_events_prune/, 'by their index');
};

subtest 'what is held is left alone' => sub {
    record("held$_", expires_at => q(now() - interval '1 s')) for 1 .. 3;
    my $session = $pg->session;
    $session->run("BEGIN; SELECT 1 FROM idempotency_records WHERE idem_key = 'held2' FOR UPDATE");
    is(sweep()->{expired}, 2, 'a row that somebody has locked is left');
    $session->run('ROLLBACK');
    is(sweep()->{expired}, 1, 'and taken the next time');
    $session->run(q(BEGIN; SELECT pg_advisory_xact_lock(1768187245, 'idempotency_records'::regclass::oid::int)));
    record('other', expires_at => q(now() - interval '1 s'));
    my $d = Idem::Driver->new(pg => $pg);
    my $batch = $d->call('sweep');
    is_deeply([ @$batch{qw(result busy looked)} ], [ 'OK', 1, 0 ], 'one worker at a time');
    $session->run('ROLLBACK');
    is($d->call('sweep')->{expired}, 1, 'then the other');
    $pg->do('UPDATE idempotency_control SET writer_epoch = 2');
    is($d->call('sweep')->{busy}, 1, 'a fenced writer keeps out');
    $pg->do('UPDATE idempotency_control SET writer_epoch = 1');
    $session->close;
};

my $many = 20_000;
subtest 'many at once' => sub {
    $pg->do('TRUNCATE idempotency_records, idempotency_events');
    plans();
    $pg->do(qq(INSERT INTO idempotency_records SELECT 'v1', 't', 'p' || i % 100, 'r', '1', 'u:', 'key' || i, 'c', sha256(''), '', '',
        ('00000000-0000-7000-8000-' || lpad(to_hex(i), 12, '0'))::uuid, 1, null, gen_random_uuid(), now(), '1 min', '1 h', 1, 'external', '1 d', '1 d', true, 0, 0, 0,
        'SUCCEEDED', 'succeeded', 201, '', 'body', sha256(''), now(), now(), now() - interval '1 s', now() - interval '1 s' + i % 2 * interval '1 d', now() - interval '1 s'
        FROM generate_series(1, $many) i));
    plans();
    my $sums = sweep();
    is($sums->{expired}, $many / 2, 'those that expire');
    is($sums->{removed}, $many / 2, 'those that may go are gone');
    cmp_ok($sums->{longest_batch_ms}, '<', $ENV{IDEM_OUT} && $ENV{IDEM_OUT} =~ /asan/ ? 1000 : 400, 'in short batches');
    note("longest batch $sums->{longest_batch_ms} ms");
    is($pg->value("SELECT count(*) FROM idempotency_records WHERE sweep_at <= now()"), 0, 'nothing is left to do');
    my $plan = plans();
    like($plan, qr/Index Scan using idempotency_records_sweep/, 'by its index');
    unlike($plan, qr/Seq Scan on (?:\w+\.)?idempotency_(?:records|events|effects)/, 'and reading no table from end to end') or diag(substr $plan, 0, 6000);
};

subtest 'what a dead process leaves behind' => sub {
    $pg->do('TRUNCATE idempotency_records, idempotency_events, idempotency_owners');
    # a process that died a minute ago with 1,000 operations under way, among others' in the same hours
    $pg->do("INSERT INTO idempotency_owners VALUES ($dead, 'h', 1, now() - interval '9 days', now() - interval '1 min')");
    beat();
    $pg->do(qq(INSERT INTO idempotency_records SELECT 'v1', 't', 'p' || i % 100, 'r', '1', 'u:', 'key' || i, 'c', sha256(''), '', '',
        (lpad(to_hex((extract(epoch FROM now()) * 1000)::bigint - i * 100 - 60000), 12, '0') || '70008000' || lpad(to_hex(i), 12, '0'))::uuid, 1,
        CASE WHEN i % 20 = 0 THEN $dead ELSE $owner END::uuid, gen_random_uuid(), now() - interval '1 min', '2 s', '1 h', 1,
        'external', '1 d', '1 d', true, 0, 0, 0, CASE WHEN i % 20 = 0 THEN 'EXECUTING' ELSE 'SUCCEEDED' END, NULL, 201, '', 'body', sha256(''), now(),
        CASE WHEN i % 20 = 0 THEN NULL ELSE now() END, CASE WHEN i % 20 = 0 THEN NULL ELSE now() + interval '1 d' END, NULL, now() + interval '1 d'
        FROM generate_series(1, $many) i));
    plans();
    my $sums = sweep();
    is($sums->{unknown}, $many / 20, 'its operations are UNKNOWN, long before their retention');
    is($pg->value("SELECT count(*) FROM idempotency_records WHERE status = 'UNKNOWN' AND owner <> $dead"), 0, 'and no other');
    is($pg->value("SELECT count(*) FROM idempotency_owners WHERE owner = $dead"), 1, 'who it was is kept for a while');
    my $plan = plans();
    my ($recover) = $plan =~ /(.{0,400}idempotency_records.{0,200}ORDER BY r\.operation_id DESC.*)/s;
    like($recover, qr/Index Scan Backward using idempotency_records_operation.*Index Cond: \(\(operation_id >= .*operation_id < /s, 'by one range of an index');
    unlike($recover, qr/Seq Scan on (?:\w+\.)?idempotency_(?:records|events)/, 'and reading no table from end to end');
    $pg->do("UPDATE idempotency_owners SET seen_at = now() - interval '2 h' WHERE owner = $dead");
    sweep();
    is($pg->value("SELECT count(*) FROM idempotency_owners WHERE owner = $dead"), 0, 'then its row is cleared');
    is($pg->value("SELECT count(*) FROM idempotency_owners WHERE owner = $owner"), 1, 'who lives stays');
};

subtest 'bad words' => sub {
    my ($status, $said) = ctl($pg, 'sweep', '--all');
    is($status, 2, 'an option that is none');
    ($status, $said) = ctl($pg, '--store', 'postgresql://op@127.0.0.1:1/x', 'sweep');
    is($status, 3, 'no store');
};

done_testing;
