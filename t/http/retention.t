# Records that age, on the wire: retention, tombstones, reuse; with the sweep and without. CONTRACT section 8.
use strict;
use warnings;
use Idem::Load;
use Idem::Test;
use JSON::PP;

sub config {
    return protected('/charges', 'charges.create', 'IdempotencyRetention 2s', 'IdempotencyLease 1s')
        . protected('/again', 'again.create', 'IdempotencyRetention 1s', 'IdempotencyTombstone 2s', 'IdempotencyReuse Allow', 'IdempotencyLease 1s')
        . protected({ by => 'proxy' }, '/proxy', 'proxy.create', 'IdempotencyRetention 1h', 'IdempotencyLease 2s')
        . protected({ by => 'proxy' }, '/brief', 'brief.create', 'IdempotencyRetention 200ms', 'IdempotencyTombstone 200ms', 'IdempotencyReuse Allow', 'IdempotencyLease 1s');
}
# Four time zones that have nothing to do with each other: database, role, httpd, and this test's.
$ENV{TZ} = 'Asia/Kathmandu';
my $t = Idem::Test->new(backends => [ 'cgi', 'proxy' ], config => config(), start => 0,
    pg_arg => { settings => { timezone => 'America/Anchorage' } }, httpd => { env => { TZ => 'Pacific/Kiritimati' } });
$t->pg->do(q(ALTER ROLE web SET timezone = 'Australia/Lord_Howe'));
$t->httpd->start;
my $c = $t->client;
my $lock = $t->pg->session;
sub hold_sweep { $lock->run(q(BEGIN; SELECT pg_advisory_xact_lock(1768187245, 'idempotency_records'::regclass::oid::int))) }
sub let_sweep { $lock->run('ROLLBACK') }
# Waits until the store's clock says that a record's time has come, whatever this machine's load is.
sub past { my ($key, $column) = @_; return ok(wait_for(sub { $t->pg->value("SELECT $column <= now() FROM idempotency_records WHERE idem_key = '$key'") eq 't' }, 10), "$column has passed") }
sub sweep { my ($status, $said) = $t->ctl('sweep', '--json'); is($status, 0, 'swept') or diag($said); return decode_json($said) }

subtest 'expired is expired, swept or not' => sub {
    hold_sweep();
    my $key = fresh_key();
    my $first;
    ran($t, 1, 'a key', sub {
        $first = $c->post('/charges', key => $key, body => '{}');
        is_replay($c->post('/charges', key => $key, body => '{}'), $first, 'live, whatever the zones are');
        past($key, 'expires_at');
        my $res = $c->post('/charges', key => $key, body => '{}');
        problem($res, 'key-expired', operation => 1);
        is($res->json->{outcome}, 'succeeded', 'says what became of it');
        like($res->json->{settled}, qr/\A\d{4}-\d\d-\d\dT/, 'and when');
        problem($c->post('/charges', key => $key, body => '{"x":1}'), 'key-reused', operation => 1);
    });
    is($t->pg->value("SELECT status FROM idempotency_records WHERE idem_key = '$key'"), 'SUCCEEDED', 'the sweep was off');
    let_sweep();
    past($key, 'sweep_at');
    cmp_ok(sweep()->{expired}, '>=', 1, 'now it is on');
    ran($t, 0, 'a tombstone', sub {
        problem($c->post('/charges', key => $key, body => '{}'), 'key-expired', operation => 1, secrets => [ $first->body ]);
        problem($c->post('/charges', key => $key, body => '{"x":1}'), 'key-reused', operation => 1);
    });
    is($t->pg->value("SELECT response_body IS NULL AND response_headers IS NULL FROM idempotency_records WHERE idem_key = '$key'"), 't', 'has no answer');
};

for my $swept (0, 1) {
    subtest 'used again where that is allowed, ' . ($swept ? 'swept' : 'not swept') => sub {
        hold_sweep() unless $swept;
        my $key = fresh_key();
        my ($first, $second);
        ran($t, 2, 'the key', sub {
            $first = $c->post('/again', key => $key, body => '{}');
            past($key, $swept ? 'sweep_at' : 'expires_at');
            sweep() if $swept;
            problem($c->post('/again', key => $key, body => '{}'), 'key-expired', operation => 1);
            past($key, 'tombstone_until');
            sweep() if $swept;
            is($t->record_count("idem_key = '$key'"), $swept ? 0 : 1, 'the tombstone');
            $second = $c->post('/again', key => $key, body => '{"other":1}');
            is($second->status, 200, 'runs as new');
            isnt($second->operation, $first->operation, 'as another operation');
        });
        is_replay($c->post('/again', key => $key, body => '{"other":1}'), $second, 'and is the one from now on');
        let_sweep() unless $swept;
    };
}

subtest 'what nobody knows does not age' => sub {
    my $key = fresh_key();
    $t->backend->behave(status => 500);
    $c->post('/again', key => $key, body => '{}');
    $t->backend->behave;
    $t->pg->do("UPDATE idempotency_records SET created_at = now() - interval '3 years', settled_at = now() - interval '3 years' WHERE idem_key = '$key'");
    sweep();
    problem($c->post('/again', key => $key, body => '{}'), 'outcome-unknown', operation => 1);
};

subtest 'a sweep in a loop beside load on two servers' => sub {
    my $twin = $t->twin(mpm => 'prefork');
    $twin->httpd->start;
    my $load = Idem::Load->start($t, workers => 3, clients => [ map { $_->client->with(authority => 'shop.example') } $t, $twin ]);
    my $end = own_folder('sweeper') . '/end';
    my $sweeper = fork // die "fork: $!";
    if (!$sweeper) {
        my $bad = 0;
        while (!-e $end) { my ($status) = $t->ctl('sweep'); $bad ||= $status }
        POSIX::_exit($bad);
    }
    my ($unexpected, $runs) = (0, 0);
    my $client = $t->both->with(timeout => 10);
    for my $n (1 .. 100) { # keys that expire all the time
        my $status = $client->post('/brief', key => 'brief-' . $n % 5, body => '{}')->status;
        $unexpected++ if $status != 200 && $status != 410 && $status != 409;
        $runs++ if $status == 200;
    }
    ok($load->wait_for_more(200, 40), 'the load goes on');
    spew($end, '');
    waitpid $sweeper, 0;
    is($?, 0, 'the sweep has not failed');
    is($unexpected, 0, 'nothing but answers, expiry and patience');
    cmp_ok($runs, '>', 5, 'keys were used again');
    $load->stop;
    is($load->count('5..'), 0, 'no 5xx');
    $load->holds('the load');
};

subtest 'a server sweeps by itself, and what its dead sibling left' => sub {
    my $key = fresh_key();
    $t->backend->behave(hold => 1);
    my $connection = $c->send(POST => '/proxy', key => $key, body => '{}');
    ok(wait_for(sub { $t->record_count("idem_key = '$key' AND status = 'EXECUTING'") }, 10), 'one is running');
    $t->httpd->kill9;
    $t->backend->release;
    $t->backend->behave;
    $t->httpd->start;
    is($c->post('/proxy', key => fresh_key(), body => '{}')->status, 200, 'the next server works');
    ok(wait_for(sub { $t->record_count("idem_key = '$key' AND status = 'UNKNOWN'") }, 45), 'and tells of it without being asked');
    is($t->pg->value("SELECT actor FROM idempotency_events e JOIN idempotency_records r USING (operation_id) WHERE r.idem_key = '$key'"), 'sweep', 'as the sweep');
};
is(($t->ctl('verify'))[0], 0, 'the registry is sound') or diag(($t->ctl('verify'))[1]);
$t->httpd->allow_log(qr/Unclean shutdown/);
$t->finish;
