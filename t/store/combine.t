# Several threads' rows in one statement: each has its own outcome, its own deadline and its own trouble. CONTRACT section 9.
use strict;
use warnings;
use Idem::Driver;

my $pg = migrated();
my $blocker = $pg->session;

sub driver { return Idem::Driver->new(pg => $pg, set => { timeout => 8000, writers => 1, @_ }) }
sub counts { my $c = $_[0]->call('connections'); return @$c{qw(statements rows alone)} }
sub waiting { my ($d, $n) = @_; ok(wait_for(sub { $d->call('connections')->{waiting} == $n }, 5), "$n in the queue") }

# Writers that are kept: an insert of the same key that is not decided yet.
sub keep { my ($session, $key) = @_; $session->run('BEGIN; ' . insert($key)) }
sub insert {
    my ($key) = @_;
    return q(INSERT INTO idempotency_records SELECT 'v1', 't', 'p', 'r', '1', 'u:', ') . $key . q(', 'c', sha256(''), '', '',
        gen_random_uuid(), 1, null, gen_random_uuid(), now(), '1 min', '1 h', 1, 'external', '1 d', '1 d', false, 0, 0, 0,
        'EXECUTING', null, null, null, null, null, now(), null, null, null, now() + interval '1 d');
}

# Starts a reserve that occupies the one writer until let_go.
sub occupy {
    my ($d, $key) = @_;
    keep($blocker, $key);
    my $id = $d->begin('reserve', key => $key);
    ok(wait_for(sub { $pg->value(q(SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%idempotency_records%')) }, 5), 'the writer is at work');
    return $id;
}
sub let_go { $blocker->run('ROLLBACK') }
sub results { return join ' ', map { $_->{result} } @_ }

subtest 'alone, nothing is combined' => sub {
    my $d = driver();
    for my $i (1 .. 5) {
        my $one = $d->call('reserve', key => "alone$i");
        is($one->{result}, 'OK', 'reserved');
        is($d->call('settle', operation => $one->{operation}, code => 201, headers => 'h', body => "b$i", digest => 'd')->{result}, 'OK', 'settled');
        is($d->call('reserve', key => "alone$i")->{body}, "b$i", 'found');
    }
    is_deeply([ counts($d) ], [ 0, 0, 0 ], 'no statement had more than one row');
};

subtest 'one statement, each row its own outcome' => sub {
    my $d = driver();
    my $old = $d->call('reserve', key => 'old', recipe => "r\0", fingerprint => 9);
    $d->call('settle', operation => $old->{operation}, code => 201, headers => "h\0h", body => "old\0answer", digest => 'd');
    my $first = occupy($d, 'busy1');
    my @fresh = map { $d->begin('reserve', key => "fresh$_") } reverse 1 .. 10;
    my @equal = map { $d->begin('reserve', key => 'equal', principal => 'q') } 1 .. 4;
    my @found = map { $d->begin('reserve', key => 'old') } 1 .. 3;
    waiting($d, 17);
    my $before = $pg->value('SELECT count(*) FROM idempotency_records');
    let_go();
    is(results($d->join_all($first)), 'OK', 'the one that was kept');
    my @r = $d->join_all(@fresh);
    is(results(@r), join(' ', ('OK') x 10), 'fresh ones are reserved');
    for my $r (@r) {
        is($pg->value("SELECT owner_token FROM idempotency_records WHERE operation_id = '$r->{operation}'"), $r->{token}, 'each its own row');
    }
    is($pg->value(q(SELECT string_agg(idem_key, ' ' ORDER BY ctid) FROM idempotency_records WHERE idem_key LIKE 'fresh%')),
        join(' ', map { "fresh$_" } sort 1 .. 10), 'in the order of the primary key, whoever came first');
    my @e = $d->join_all(@equal);
    is(results(sort { $a->{result} cmp $b->{result} } @e), 'FOUND FOUND FOUND OK', 'of equals one has it');
    my ($owner) = grep { $_->{result} eq 'OK' } @e;
    is_deeply([ map { $_->{operation} } grep { $_->{result} eq 'FOUND' } @e ], [ ($owner->{operation}) x 3 ], 'and the others find that one');
    for my $f ($d->join_all(@found)) {
        is_deeply([ @$f{qw(result operation body headers recipe fingerprint code)} ], [ 'FOUND', $old->{operation}, "old\0answer", "h\0h", "r\0", 9, 201 ], 'a record, octet for octet');
    }
    is($pg->value('SELECT count(*) FROM idempotency_records'), $before + 12, 'and no row more');
    is_deeply([ counts($d) ], [ 1, 17, 0 ], 'in one statement, and nobody had to ask once more');
    # settlements
    $first = occupy($d, 'busy2');
    my %want = (9 => [ 'OK', 'FAILED_FINAL' ], map { $_ => [ 'OK', 'SUCCEEDED' ] } 0 .. 8);
    my @s = map { $d->begin('settle', operation => $r[$_]{operation}, outcome => $_ == 9 ? 'failed' : 'succeeded', code => 200 + $_, headers => 'h', body => "body$_", digest => "d$_") } 0 .. 9;
    my @odd = ($d->begin('settle', operation => uuid(), body => 'x'), $d->begin('settle', operation => $old->{operation}, generation => 2, body => 'x'),
        $d->begin('settle', operation => $old->{operation}, code => 201, headers => "h\0h", body => "old\0answer", digest => 'd'));
    waiting($d, 13);
    let_go();
    is(results($d->join_all($first)), 'OK', 'the one that was kept');
    my @got = $d->join_all(@s);
    for my $i (0 .. 9) {
        is_deeply([ @{ $got[$i] }{qw(result state)} ], $want{$i}, "settled: $want{$i}[1]");
        is($pg->value("SELECT concat_ws(' ', status, response_code, convert_from(response_body, 'UTF8'), convert_from(response_digest, 'UTF8')) FROM idempotency_records WHERE operation_id = '$r[$i]{operation}'"),
            "$want{$i}[1] " . (200 + $i) . " body$i d$i", 'with its own answer');
    }
    is(results($d->join_all(@odd)), 'NOT_FOUND STALE OK', 'unknown, of another generation, done before');
    is((counts($d))[2], 3, 'those three asked once more');
};

subtest 'both kinds in one statement' => sub {
    my $d = driver();
    my @op = map { $d->call('reserve', key => "kinds$_")->{operation} } 1 .. 4;
    $d->call('settle', operation => $op[3], code => 200, headers => 'h', body => 'there', digest => 'd');
    my $first = occupy($d, 'busy14');
    my @new = map { $d->begin('reserve', key => "kinds$_") } 5 .. 7;
    my @settle = map { $d->begin('settle', operation => $op[$_], outcome => $_ ? 'failed' : 'succeeded', code => 200 + $_, headers => 'h', body => "b$_", digest => 'd') } 0, 1;
    my @seen = map { $d->begin('reserve', key => "kinds$_") } 3, 4;
    my $bad = $d->begin('settle', operation => uuid(), body => 'x');
    waiting($d, 8);
    my $commits = sub { my $ids = join ',', map { "'$_'" } @_; $pg->value("SELECT count(DISTINCT xmin::text) FROM idempotency_records WHERE operation_id IN ($ids)") };
    let_go();
    is(results($d->join_all($first)), 'OK', 'the one that was kept');
    my @r = $d->join_all(@new);
    is(results(@r), 'OK OK OK', 'reserved');
    is(results($d->join_all(@settle)), 'OK OK', 'settled');
    my @f = $d->join_all(@seen);
    is_deeply([ map { "$_->{result} $_->{operation} " . ($_->{body} // '-') } @f ], [ "FOUND $op[2] -", "FOUND $op[3] there" ], 'found');
    is(results($d->join_all($bad)), 'NOT_FOUND', 'unknown');
    is($commits->((map { $_->{operation} } @r), @op[ 0, 1 ]), 1, 'what was written was written by one transaction');
    is($pg->value("SELECT string_agg(status || response_code, ' ' ORDER BY idem_key) FROM idempotency_records WHERE idem_key IN ('kinds1', 'kinds2')"), 'SUCCEEDED200 FAILED_FINAL201', 'each by its outcome');
    is_deeply([ counts($d) ], [ 1, 8, 1 ], 'in one statement; the unknown one asked once more');

    $first = occupy($d, 'busy15');
    my @together = ($d->begin('reserve', key => 'kinds8'), $d->begin('settle', operation => $op[2], code => 200, headers => 'h', body => 'b', digest => 'd'),
        $d->begin('reserve', key => 'kinds9', tenant => "t\xff"));
    waiting($d, 3);
    let_go();
    is(results($d->join_all($first, @together)), 'OK OK OK UNAVAILABLE', 'a row that is refused harms neither kind');
};

subtest 'too late to wait for a lock, not too late to settle' => sub {
    my $d = driver();
    my $op = $d->call('reserve', key => 'late1')->{operation};
    my $first = occupy($d, 'busy19');
    my @late = map { $d->begin(@$_, deadline => 2400) } [ 'settle', operation => $op, code => 200, headers => 'h', body => 'b', digest => 'd' ], [ 'reserve', key => 'late2' ];
    waiting($d, 2);
    let_go();
    is(results($d->join_all($first)), 'OK', 'the one that was kept');
    my ($settled, $reserved) = $d->join_all(@late);
    is_deeply([ @$settled{qw(result state)} ], [ 'OK', 'SUCCEEDED' ], 'a settlement, which waits for none, is written');
    is_deeply([ @$reserved{qw(result maybe)} ], [ 'UNAVAILABLE', 0 ], 'the reserve beside it is not sent');
};

subtest 'a second writer, where one will not do' => sub {
    my $d = driver(writers => 2, timeout => 32_000);    # slow is 1 s here
    my $first = occupy($d, 'busy16');
    my $second = $d->begin('reserve', key => 'second1');
    waiting($d, 1);    # it is in no hurry to stand beside the first
    is(results($d->join_all($second)), 'OK', 'is there where the first is slow');
    is($d->call('connections')->{writing}, 1, 'while that one is still at work');
    my ($next) = $d->join_all($d->begin('reserve', key => 'second2'));
    is($next->{result}, 'OK', 'and so is who comes then');
    cmp_ok($next->{took}, '<', 600, 'who is not kept: the first is slow already');
    let_go();
    is(results($d->join_all($first)), 'OK', 'the one that was kept');

    $d = driver(writers => 2, timeout => 600_000);    # slow is 18 s here
    $first = occupy($d, 'busy17');
    my @crowd = map { $d->begin('reserve', key => "crowd$_") } 1 .. 70;
    ok(wait_for(sub { $pg->value("SELECT count(*) FROM idempotency_records WHERE idem_key LIKE 'crowd%'") == 65 }, 5), 'and at once where a statement is full');
    waiting($d, 5);    # the first of them went alone: nobody knew whether the store still answers
    let_go();
    my @r = $d->join_all($first, @crowd);
    is(scalar(grep { $_->{result} eq 'OK' } @r), 71, 'all are served');
    $first = occupy($d, 'busy18');
    my @weighty = map { $d->begin('settle', operation => $_->{operation}, code => 200, headers => 'h', size => 30_000, digest => 'd') } @r[ 1 .. 9 ];
    ok(wait_for(sub { $pg->value("SELECT count(*) FROM idempotency_records WHERE idem_key LIKE 'crowd%' AND status = 'SUCCEEDED'") == 8 }, 5), 'full by weight, too');
    let_go();
    is(results($d->join_all($first, @weighty)), join(' ', ('OK') x 10), 'all are served');
};

subtest 'a leader without company' => sub {
    my $d = driver();
    my $old = $d->call('reserve', key => 'single', recipe => 'r');
    my $first = occupy($d, 'busy12');
    my $single = $d->begin('reserve', key => 'single');
    waiting($d, 1);
    let_go();
    $d->join_all($first);
    $d->begin('reserve', key => "noise$_") for 1 .. 10;    # what was freed is used again
    my ($found) = $d->join_all($single);
    is_deeply([ @$found{qw(result operation recipe key)} ], [ 'FOUND', $old->{operation}, 'r', 'single' ], 'finds what is there');
};

subtest 'a row that the database refuses' => sub {
    my $d = driver();
    my $first = occupy($d, 'busy3');
    my @good = map { $d->begin('reserve', key => "good$_") } 1 .. 5;
    my $bad = $d->begin('reserve', key => 'bad', tenant => "t\xff");
    waiting($d, 6);
    let_go();
    is(results($d->join_all(@good)), 'OK OK OK OK OK', 'harms nobody else');
    my ($refused) = $d->join_all($bad);
    is_deeply([ @$refused{qw(result maybe)} ], [ 'UNAVAILABLE', 0 ], 'and is refused itself');
    $d->join_all($first);
    unlike($d->log, qr/t\xff/, 'its octets are in no log');
};

subtest 'everybody has a deadline' => sub {
    my $d = driver();
    my $other = $pg->session;
    my $first = occupy($d, 'busy4');
    my $leaver = $d->begin('reserve', key => 'leaver', deadline => 300);
    my ($left) = $d->join_all($leaver);
    is_deeply([ @$left{qw(result maybe)} ], [ 'UNAVAILABLE', 0 ], 'who leaves the queue knows that nothing was written');
    cmp_ok($left->{took}, '<', 1000, 'and leaves in time');
    # the next batch is kept too, by another transaction
    keep($other, 'busy5');
    my $leader = $d->begin('reserve', key => 'busy5');
    waiting($d, 1);
    my $follower = $d->begin('reserve', key => 'follower', deadline => 1500);
    waiting($d, 2);
    let_go();
    my ($followed) = $d->join_all($follower);
    is_deeply([ @$followed{qw(result maybe)} ], [ 'AMBIGUOUS', 1 ], 'who leaves a batch that was sent does not');
    cmp_ok($followed->{took}, '<', 2500, 'and leaves in time');
    $other->run('ROLLBACK');
    is(results($d->join_all($first, $leader)), 'OK OK', 'the others are served');
    is($d->call('reserve', key => 'leaver')->{result}, 'OK', 'never written');
    is($d->call('reserve', key => 'follower')->{operation}, $followed->{operation}, 'written');
    is($d->call('connections')->{writing}, 0, 'no place is lost');
};

subtest 'large settlements keep nobody waiting' => sub {
    my $d = driver();
    my @op = map { $d->call('reserve', key => "large$_")->{operation} } 1 .. 21;
    my $first = occupy($d, 'busy6');
    my $large = $d->begin('settle', operation => $op[0], code => 200, headers => 'h', size => 1_048_576, digest => 'd');
    my ($settled) = $d->join_all($large);
    is($settled->{result}, 'OK', 'a megabyte goes its own way, past a writer that is kept');
    my @s = map { $d->begin('settle', operation => $op[$_], code => 200, headers => 'h', size => 30_000, digest => 'd') } 1 .. 20;
    my @small = map { $d->begin('reserve', key => "small$_") } 1 .. 20;
    waiting($d, 40);
    my @before = counts($d);
    let_go();
    is(results($d->join_all(@small)), join(' ', ('OK') x 20), 'small ones');
    is(results($d->join_all(@s)), join(' ', ('OK') x 20), 'and middling ones');
    cmp_ok((counts($d))[0] - $before[0], '>=', 3, 'twenty times 30,000 octets are more than one statement');
    is(results($d->join_all($first)), 'OK', 'the one that was kept');
};

subtest 'batches in opposite orders' => sub {
    my @d = (driver(writers => 2), driver(writers => 2));
    my @ids;
    for my $n (1 .. 40) {
        push @{ $ids[0] }, $d[0]->begin('reserve', key => "order$n");
        push @{ $ids[1] }, $d[1]->begin('reserve', key => 'order' . (41 - $n));
    }
    my @r = map { $d[$_]->join_all(@{ $ids[$_] }) } 0, 1;
    is(scalar(grep { $_->{result} eq 'OK' } @r), 40, 'each key has one owner');
    is(scalar(grep { $_->{result} eq 'FOUND' } @r), 40, 'and one that finds it');
    unlike($pg->log, qr/deadlock/, 'no deadlock');
};

subtest 'a batch and somebody else\'s transaction lock each other out' => sub {
    my $d = driver();
    my $other = $pg->session;
    $other->run(q(SET deadlock_timeout = '60s')); # so it is the batch that is ended
    my $deadlocks = () = $pg->log =~ /deadlock detected/g;
    my $first = occupy($d, 'busy13');
    keep($other, 'cross3');
    my @crossed = map { $d->begin('reserve', key => "cross$_") } 1 .. 3;
    waiting($d, 3);
    let_go();
    is(results($d->join_all($first)), 'OK', 'the one before');
    ok(wait_for(sub { $pg->value(q(SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%unnest%')) == 1 }, 5), 'the batch waits for the last of its rows');
    print { $other->{to} } insert('cross1') . ";\n";
    ok(wait_for(sub { (() = $pg->log =~ /deadlock detected/g) > $deadlocks }, 10), 'whose owner waits for the first, and the batch is ended');
    $other->run('ROLLBACK');
    my @r = $d->join_all(@crossed);
    is(results(@r), 'OK OK OK', 'each row is asked for alone, and served');
    is_deeply([ map { $_->{maybe} } @r ], [ 0, 0, 0 ], 'with nothing in doubt');
    is((counts($d))[2], 3, 'three alone');
    is($d->call('connections')->{broken}, 0, 'over connections that are good');
};

subtest 'a leader whose connection dies' => sub {
    my $d = driver();
    my $other = $pg->session;
    my $first = occupy($d, 'busy7');
    keep($other, 'busy8');
    my @crew = map { $d->begin('reserve', key => $_) } 'busy8', 'crew1', 'crew2';
    waiting($d, 3);
    let_go();
    is(results($d->join_all($first)), 'OK', 'the one before');
    my $waits = q(FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%unnest%');
    ok(wait_for(sub { $pg->value("SELECT count(*) $waits") == 1 }, 5), 'the batch is under way');
    $pg->value("SELECT pg_terminate_backend(pid) $waits");
    ok(wait_for(sub { $pg->value("SELECT count(*) $waits") == 1 }, 5), 'and is sent again over another connection');
    $other->run('ROLLBACK');
    my @r = $d->join_all(@crew);
    is(results(@r), 'OK OK OK', 'nobody is harmed');
    is_deeply([ map { $_->{maybe} } @r ], [ 1, 1, 1 ], 'and all know of the first sending');

    $first = occupy($d, 'busy9');
    keep($other, 'busy10');
    @crew = map { $d->begin('reserve', key => $_) } 'busy10', 'lost1', 'lost2';
    waiting($d, 3);
    let_go();
    $d->join_all($first);
    ok(wait_for(sub { $pg->value("SELECT count(*) $waits") == 1 }, 5), 'the batch is under way');
    my $begun = time;
    $pg->kill9;
    @r = $d->join_all(@crew);
    is(results(@r), 'AMBIGUOUS AMBIGUOUS AMBIGUOUS', 'with the server gone nobody can say');
    cmp_ok(time - $begun, '<=', 4, 'and all learn it at once');
    $_->close for $other, $blocker;
    $pg->start;
    $blocker = $pg->session;
    is($d->call('connections')->{writing}, 0, 'no place is lost');
};

subtest 'the server stops between reserves and settlements' => sub {
    my $d = driver();
    my $first = occupy($d, 'busy11');
    my @r = map { $d->begin('reserve', key => "between$_") } 1 .. 6;
    waiting($d, 6);
    let_go();
    $d->join_all($first);
    @r = $d->join_all(@r);
    is(results(@r), join(' ', ('OK') x 6), 'reserved together');
    $blocker->close;
    $pg->stop('immediate');
    my @settle = map { $d->begin('settle', operation => $_->{operation}, code => 200, headers => 'h', body => 'b', digest => 'd', deadline => 700) } @r;
    my @s = $d->join_all(@settle);
    is(scalar(grep { $_->{result} =~ /^(?:UNAVAILABLE|AMBIGUOUS)$/ } @s), 6, 'no settlement is taken for done');
    $pg->start;
    is($pg->value(q(SELECT count(*) FROM idempotency_records WHERE idem_key LIKE 'between%' AND status = 'EXECUTING')), 6, 'the reserves have outlasted it');
    @settle = map { $d->begin('settle', operation => $_->{operation}, code => 200, headers => 'h', body => 'b', digest => 'd') } @r;
    is(results($d->join_all(@settle)), join(' ', ('OK') x 6), 'and are settled when it is back');
};

subtest 'many threads for a while' => sub {
    my $d = driver(writers => 2);
    my $before = $pg->value('SELECT count(*) FROM idempotency_records');
    my $bench = $d->call('bench', threads => 32, length => 1500, deadline => 20_000);
    is($bench->{faults}, 0, 'every call as it should be') or diag($d->log);
    is($pg->value('SELECT count(*) FROM idempotency_records') - $before, $bench->{calls}, 'one row a call');
    is($pg->value(q(SELECT count(*) FROM idempotency_records WHERE principal_id ~ '^p[0-9]+$' AND status <> 'SUCCEEDED')), 0, 'all settled');
    my ($statements, $rows) = counts($d);
    cmp_ok($rows, '>', 2 * $statements, "combined: $rows rows in $statements statements of more than one");
    my $race = $d->call('race', threads => 32, key => 'race', deadline => 20_000);
    is_deeply([ @$race{qw(OK FOUND)} ], [ 1, 31 ], 'one of many equals');
};

done_testing;
