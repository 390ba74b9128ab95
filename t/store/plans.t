# How the statements find their rows, and what a settlement costs the indexes. CONTRACT sections 7 and 8.
use strict;
use warnings;
use Idem::Driver;

my $pg = migrated(settings => { shared_preload_libraries => 'auto_explain', 'auto_explain.log_min_duration' => 0,
    'auto_explain.log_nested_statements' => 'on', 'auto_explain.log_level' => 'log', log_min_messages => 'warning' });

# Plans of what the driver's session ran since a mark.
my $mark = 0;
sub plans { my $log = $pg->log; my $new = substr $log, $mark; $mark = length $log; return $new }

$pg->do(q(INSERT INTO idempotency_records SELECT 'v1', 't', 'p' || i % 100, 'r', '1', 'u:', 'key' || i, 'c', sha256(''), '', '',
    ('00000000-0000-7000-8000-' || lpad(to_hex(i), 12, '0'))::uuid, 1, null, gen_random_uuid(), now(), '1 min', '1 h', 1, 'external', '1 d', '1 d', false, 0, 0, 0,
    'SUCCEEDED', 'succeeded', 201, '', '', sha256(''), now(), now(), now() + interval '1 d', 'infinity', now() + interval '1 d' FROM generate_series(1, 20000) i));

for my $analysed (0, 1) {
    $pg->do('VACUUM ANALYZE') if $analysed;
    my $when = $analysed ? 'with statistics' : 'without statistics';
    for my $prepared (1, 0) {
        my $how = ($prepared ? 'prepared' : 'not prepared') . ", $when";
        my $d = Idem::Driver->new(pg => $pg, set => { prepared => $prepared });
        my $operation = uuid();
        my $key = "plan-$analysed-$prepared";
        $d->call('reserve', key => 'warm' . $key);
        plans();
        my %call = (
            '1 reserve' => [ 'reserve', key => $key, operation => $operation, principal => 'p7' ],
            '2 find' => [ 'find', key => $key, principal => 'p7', as => 'seen' ], '3 dispatch' => [ 'dispatch', operation => $operation ],
            '4 find_operation' => [ 'find_operation', operation => $operation ], '5 take_over' => [ 'take_over', seen => 'seen' ],
            '6 mark_unknown' => [ 'mark_unknown', seen => 'seen' ], '7 settle' => [ 'settle', operation => $operation ],
            '8 settle late' => [ 'settle', operation => $operation, outcome => 'unknown' ],
            '9 reject' => [ 'settle', operation => $operation, outcome => 'rejected' ],
        );
        for my $name (sort keys %call) {
            my ($call, @value) = @{ $call{$name} };
            $d->call($call, @value);
            my $plan = plans();
            my $index = $call =~ /^(?:reserve|find)$/ ? 'idempotency_records_pkey' : 'idempotency_records_operation';
            my @used = $plan =~ /Index (?:Only )?Scan (?:using|on) (idempotency_records_\w+)/g;
            is_deeply([ grep { $_ ne $index } @used ], [], "$how: $name goes by its index and no other") or diag($plan);
            ok(scalar(@used), "$how: $name goes by an index") or diag($plan);
            unlike($plan, qr/Seq Scan on (?:\w+\.)?idempotency_(?:records|events|effects)/, "$how: $name reads no table from end to end") or diag($plan);
        }
    }
}

subtest 'many rows in one statement' => sub {
    $pg->do('CREATE TABLE kept AS SELECT * FROM idempotency_records; TRUNCATE idempotency_records; VACUUM ANALYZE idempotency_records');
    my $d = Idem::Driver->new(pg => $pg, set => { writers => 1 });
    $d->call('bench', threads => 8, length => 200, deadline => 10_000);    # planned on an empty table
    my @replays = (threads => 8, length => 200, deadline => 10_000, mode => 'replay', key => 'known');
    $d->call('reserve', key => 'known');
    $d->call('bench', @replays);
    $pg->do('INSERT INTO idempotency_records SELECT * FROM kept');
    plans();
    $d->call('bench', threads => 8, length => 200, deadline => 10_000);
    my $plan = plans();
    cmp_ok($d->call('connections')->{statements}, '>', 2, 'there were some');
    $d->call('bench', @replays);
    $plan .= plans();
    my $many = join '', grep { /unnest/ } split /(?=Query Text:)/, $plan;
    my @scans = $many =~ /(\S+ Scan (?:using \S+ )?on idempotency_records.*\n.*)/g;
    is_deeply([ grep { !/(?:Index|TID) Cond:/ } @scans ], [], 'rows are looked up, one by one, and no table is read from end to end') or diag($many);
    is_deeply([ sort keys %{ { map { /using (\S+)/ ? ($1 => 1) : () } @scans } } ], [ 'idempotency_records_operation', 'idempotency_records_pkey' ], 'by the index that is meant');
};

subtest 'a plan made on an empty table' => sub {
    $pg->do('TRUNCATE idempotency_records; VACUUM ANALYZE idempotency_records');
    my $d = Idem::Driver->new(pg => $pg);
    $d->call('reserve', key => "early$_") for 1 .. 10;
    plans();
    $d->call('reserve', key => 'late');
    my $plan = plans();
    like($plan, qr/Index Scan using idempotency_records_pkey/, 'a scope goes by its index, for the plan is kept while the table grows') or diag($plan);
    $d->call('settle', operation => uuid());
    $plan = plans();
    like($plan, qr/Index Scan using idempotency_records_operation/, 'an operation by its own') or diag($plan);
    unlike($plan, qr/idempotency_records_pkey/, 'and by no other') or diag($plan);
    for my $writes (1, 0) {
        my @chain = (older => 't2,t3,t4,t5', may_write => $writes);
        $d->call('reserve', key => "chain$_", @chain) for 1 .. 10;
        plans();
        $d->call('reserve', key => 'chain11', @chain);
        $plan = plans();
        my @conditions = $plan =~ /Scan using idempotency_records_\w+ on idempotency_records \w+ .*\n\s*Index Cond: (.*)/g;
        is(scalar(@conditions), 1, ($writes ? 'reserve' : 'find') . ': the scopes of a caller with aliases are looked up by one scan') or diag($plan);
        like($conditions[0], qr/scope_version = .*tenant_id = .*principal_id = .*route = .*api_revision = .*ns = .*idem_key = /, 'each by the whole key') or diag($plan);
    }
};

subtest 'a settlement writes no index' => sub {
    $pg->do('TRUNCATE idempotency_records; SELECT pg_stat_reset()');
    my $d = Idem::Driver->new(pg => $pg);
    for my $i (1 .. 200) {
        my $reserve = $d->call('reserve', key => "hot$i", recipe => 'r' x 40, parts => 'p' x 40);
        $d->call('settle', operation => $reserve->{operation}, code => 201, headers => 'h' x 60, body => 'b' x 300, digest => 'd' x 32);
    }
    my $stat = sub { ($pg->query(q(SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'idempotency_records')))[0] };
    undef $d;
    ok(wait_for(sub { $stat->()->{n_tup_upd} == 200 }, 15), 'two hundred settlements');
    cmp_ok($stat->()->{n_tup_hot_upd}, '>=', 190, 'nearly all of them in the row\'s own page') or diag(explain($stat->()));
};

subtest 'the tool lists a caller by a prefix of the key' => sub {
    $pg->do('TRUNCATE idempotency_records; INSERT INTO idempotency_records SELECT * FROM kept; UPDATE idempotency_records SET tenant_id = translate(principal_id, $$p$$, $$t$$); VACUUM FULL ANALYZE idempotency_records');
    for my $case ([ qr/scope_version = .*tenant_id = .*principal_id = /, '--principal', 'p7' ], [ qr/scope_version = .*tenant_id = / ]) {
        my ($condition, @more) = @$case;
        plans();
        my ($status, $said) = ctl($pg, 'list', '--tenant', 't7', @more, '--limit', '5');
        is($status, 0, "list --tenant t7 @more");
        is(scalar(() = $said =~ /^\S+-\S+ /mg), 5, 'five of them') or diag($said);
        my $plan = join '', grep { /LATERAL/ } split /(?=Query Text:)/, plans();
        my @found = $plan =~ /Index Scan using idempotency_records_pkey on idempotency_records p.*\n\s*Index Cond: (.*)/g;
        like($found[0] // $plan, $condition, 'is read by the prefix');
        unlike($plan, qr/Seq Scan on (?:\w+\.)?idempotency_records|idempotency_records_operation/, 'and nothing else is read');
    }
};

subtest 'the sweep finds its rows' => sub {
    $pg->do('SET enable_seqscan = off');
    my $plan = join '', $pg->psql(q(SET enable_seqscan = off; EXPLAIN SELECT 1 FROM idempotency_records WHERE sweep_at > '-infinity' AND sweep_at <= now() ORDER BY sweep_at LIMIT 100));
    like($plan, qr/Index (?:Only )?Scan using idempotency_records_sweep/, 'by time');
    $plan = $pg->psql(q(SET enable_seqscan = off; EXPLAIN SELECT 1 FROM idempotency_records WHERE sweep_at = '-infinity'));
    like($plan, qr/Index (?:Only )?Scan using idempotency_records_sweep|Bitmap Index Scan on idempotency_records_sweep/, 'and what nobody knows');
};

done_testing;
