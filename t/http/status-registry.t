# The operator's page on what lies behind: operations that run, what is in doubt, sweep, journal, and the mode and epoch
# of every route. In one time, however many records there are: by indexes alone.
use strict;
use warnings;
use Idem::Records qw(make_records);
use Idem::Test;

my $t = Idem::Test->new(start => 0,
    pg_arg => { settings => { session_preload_libraries => 'auto_explain', 'auto_explain.log_min_duration' => 0, 'auto_explain.log_level' => 'log',
        'auto_explain.log_analyze' => 'on' } },
    config => sub {
        my ($self) = @_;
        my $journal = $self->root . '/journal';
        mkdir $journal, 0700;
        chown +(getpwnam('mod-idempotency'))[2, 3], $journal if !$>;
        return "IdempotencyJournal $journal\nIdempotencyWriterEpoch 2\n<Location \"/\">\nIdempotencyRecoveryObjective 1h\n</Location>\n"
            . protected('/charges', 'charges.create', 'IdempotencyLatencyBudget 100ms') . protected('/refunds', 'refunds.create', 'IdempotencyMode ReadOnly')
            . protected('/later', 'later.create', 'IdempotencyMode Shadow', 'IdempotencyRecoveryObjective 1s')
            . "<Location \"/status\">\n    \@AUTH\@\n    SetHandler idempotency-status\n</Location>\n<Location \"/policy\">\n    SetHandler idempotency-policy\n</Location>\n";
    });
$t->httpd->start;
my $c = $t->client;
sub status { return $c->get('/status?format=json')->json }

subtest 'routes' => sub {
    my %route = map { $_->{route} => $_ } @{ status()->{routes} };
    is_deeply([ sort keys %route ], [ 'charges.create', 'later.create', 'refunds.create' ], 'all of them');
    is_deeply([ map { $route{$_}{mode} } sort keys %route ], [ 'Enforce', 'Shadow', 'ReadOnly' ], 'with their modes');
    is_deeply([ map { $route{$_}{path} } sort keys %route ], [ '/charges', '/later', '/refunds' ], 'where they are');
    is($route{'charges.create'}{writer_epoch}, 2, "with their server's epoch");
    is($route{'charges.create'}{latency_budget_microseconds}, 100_000, 'their budget');
    is($route{'refunds.create'}{recovery_objective_seconds}, 3600, 'and objective, where a section around them says it');
    is($route{'later.create'}{recovery_objective_seconds}, 1, 'or they themselves');
    my %public = map { $_->{route} => $_->{mode} } @{ $c->get('/policy?format=json')->json->{routes} };
    is_deeply(\%public, { 'charges.create' => 'enforced', 'later.create' => 'watched only', 'refunds.create' => 'replays only' }, 'in the words of the policy, too');
    is(status()->{registry_epoch}, 1, 'the registry is behind');
    is(status()->{latency_budget_microseconds}, 100_000, 'the tightest budget counts');
};

subtest 'what runs' => sub {
    $t->backend->behave(hold => 1);
    my $running = $c->send(POST => '/charges', key => fresh_key(), body => '{}');
    my $seen;
    ok(wait_for(sub { $seen = status(); $seen->{running_count} == 1 }, 10), 'is listed while it runs');
    is($seen->{running}[0]{route}, 'charges.create', 'with its route');
    my $operation = $seen->{running}[0]{operation};
    is($t->record_count("operation_id = '$operation' AND status = 'EXECUTING'"), 1, 'by its operation');
    like($c->get('/status')->body, qr/Executed now, oldest first: 1<.*\Q$operation\E/s, 'also for people');
    ok(wait_for(sub { $c->get('/status?format=metrics')->body =~ /^idempotency_running 1$/m }, 10), 'and machines');
    $t->backend->release;
    is($running->response->operation, $operation, 'it was that one');
    ok(wait_for(sub { status()->{running_count} == 0 }, 10), 'and no longer, when it has ended');
    $running = $c->send(POST => '/charges', key => fresh_key(), body => '{}');
    ok(wait_for(sub { status()->{running_count} == 1 }, 10), 'another one runs');
    $t->httpd->kill_child("KILL", $_) for $t->httpd->children;
    ok(wait_for(sub { my $res = $c->get('/status?format=json'); $res->status == 200 && $res->json->{running_count} == 0 }, 15), 'what a killed child has left is not shown');
    $t->backend->release;
    $t->backend->behave;
    undef $running;
};

my $many = 20_000;
subtest 'sweep, doubts, and how they are found' => sub {
    $t->pg->do('TRUNCATE idempotency_records, idempotency_owners');
    my $in_doubt = 'i % 400 = 0';
    make_records($t->pg, $many, route => q('later.create'), settled_at => q(now() - interval '2 s'), status => "CASE WHEN $in_doubt THEN 'UNKNOWN' ELSE 'SUCCEEDED' END",
        expires_at => "CASE WHEN $in_doubt THEN NULL ELSE now() + interval '1 d' END", tombstone_until => "CASE WHEN $in_doubt THEN NULL ELSE now() + interval '2 d' END",
        sweep_at => "CASE WHEN $in_doubt THEN '-infinity' ELSE now() + interval '1 d' END");
    # held, so that no child takes them away while they are looked at
    my $session = $t->pg->session;
    $session->run(q(BEGIN; SELECT pg_advisory_xact_lock(1768187245, 'idempotency_records'::regclass::oid::int)));
    $t->pg->do(q(UPDATE idempotency_records SET expires_at = now() - interval '90 s', sweep_at = now() - interval '90 s' WHERE idem_key IN ('key1', 'key2', 'key3')));
    my $mark = length $t->pg->log;
    my $seen = status();
    is($seen->{sweep}{due}, 3, 'what is due');
    cmp_ok(abs($seen->{sweep}{behind_seconds} - 95), '<=', 30, 'since when');
    is($seen->{unknown_count}, 50, 'how much is unknown');
    is($seen->{unknown_past_objective}, 50, 'longer than it should');
    is($seen->{unknown}[0]{operation}, '00000000-0000-7000-8000-000000000190', 'the oldest first');
    cmp_ok(abs($seen->{records} - $many), '<', $many / 10, 'how many records, about');
    my @plans = grep { /WHERE r\.sweep_at = '-infinity'/ } split /^(?=\d{4}-\d\d-)/m, substr $t->pg->log, $mark;
    is(scalar(@plans), 2, 'two statements');
    for my $plan (@plans) {
        my ($name) = $plan =~ /(doubt AS)/ ? 'the list' : 'the counts';
        unlike($plan, qr/Seq Scan on (?:\w+\.)?idempotency_records|Scan using idempotency_records_(?:pkey|operation).*\n(?!.*Index Cond)/, "$name: no table and no index is read from end to end") or diag($plan);
        like($plan, qr/idempotency_records_sweep/, "$name: by the sweep's index");
        my ($most) = sort { $b <=> $a } $plan =~ /Scan .*idempotency_records.*actual time=\S+ rows=(\d+)/g;
        cmp_ok($most, '<=', 50, "$name: no more rows than are shown");
    }
    $session->run('ROLLBACK');
    $session->close;
    my ($status, $said) = $t->ctl('sweep');
    is($status, 0, 'swept') or diag($said);
    is(status()->{sweep}{due}, 0, 'nothing is due any more');
};

subtest 'the journal' => sub {
    my $folder = $t->root . '/journal';
    is_deeply(status()->{journal}, { readable => 'yes', waiting => 0, oldest => undef, aside => 0 }, 'empty');
    # of another registry: they are nobody's here, and stay
    my $name = sub { sprintf '%016x-%014d-00000000-0000-7000-8000-%012d-1.settlement', 1, (time - 600) * 1000, $_[0] };
    spew("$folder/" . $name->($_), 'x') for 1 .. 3;
    mkdir "$folder/aside";
    spew("$folder/aside/" . $name->(9), 'x');
    spew("$folder/aside/" . $name->(9) . '.reason', 'because');
    my $journal = status()->{journal};
    is($journal->{waiting}, 3, 'how many wait');
    is($journal->{aside}, 1, 'how many are put aside');
    like($journal->{oldest} // '', qr/\A\d{4}-/, 'since when');
    my $metrics = $c->get('/status?format=metrics')->body;
    my ($age) = $metrics =~ /^idempotency_journal_oldest_seconds (\S+)$/m;
    cmp_ok(abs($age - 600), '<', 60, 'how long');
    like($metrics, qr/^idempotency_journal_entries 3$/m, 'the same number');
    like($metrics, qr/^idempotency_route_writer_epoch\{place="\d",server="[^"]*",path="\/refunds",route="refunds\.create",mode="ReadOnly"\} 2$/m, 'routes, too');
    my ($file, $now) = ($t->root . '/metrics', time);
    spew($file, $metrics =~ s/^([^#\s]\S* \S+)$/$1 $now/mgr, 0644);
    my $said = `promtool tsdb create-blocks-from openmetrics $file @{[ $t->root ]}/tsdb 2>&1`;
    is($?, 0, 'promtool takes all of it') or diag($said);
    for my $rules (glob source_dir() . '/conf/examples/*.yml') {
        my %known = map { s/_(?:bucket|total|count)\z//r => 1 } $metrics =~ /^(idempotency_\w+)/mg;
        my @asked = slurp($rules) =~ /\b(idempotency_[a-z_]+)/g;
        is_deeply([ grep { !$known{ s/_(?:bucket|total|count)\z//r } } @asked ], [], 'the alert rules ask for nothing that is not there');
        $said = `promtool check rules $rules 2>&1`;
        is($?, 0, 'and promtool takes them') or diag($said);
    }
    unlink glob("$folder/aside/*"), glob("$folder/*.settlement");
};
$t->httpd->allow_log(qr/IDEM\d+: /);
$t->finish;
