# The writer epoch: raised with requests in flight, two servers on one registry. CONTRACT section 8.
use strict;
use warnings;
use Idem::Load;
use Idem::Test;
use JSON::PP;
use Time::HiRes qw(time);

sub config { my ($epoch) = @_; return "IdempotencyWriterEpoch $epoch\nIdempotencyStoreTimeout 5s\n" . protected({ by => 'proxy' }, '/proxy', 'charges.create') }
my $t = Idem::Test->new(backends => ['proxy'], config => config(1), mpm_config => <<'MPM');
ServerLimit 2
StartServers 1
ThreadsPerChild 64
ThreadLimit 64
MaxRequestWorkers 128
MinSpareThreads 1
MaxSpareThreads 128
MPM
my $new = Idem::Test->new(pg => $t->pg, backends => [], modules => ['proxy', 'proxy_http'], config => '', start => 0);
$new->httpd->{config} = $t->expand(config(2));
$new->httpd->start;
my ($c, $c2) = ($t->client, $new->client);
$t->pg->do('CREATE ROLE op LOGIN IN ROLE idempotency_admin');
sub ctl { return run(cmd => [ $t->{ctl}, @_ ], env => $t->pg->env(user => 'op'), dir => '/') }
sub lines { my ($status, $said) = ctl(@_); is($status, 0, "@_") or diag($said); return $said }

# The tool, running beside us: ->() is its exit status once it has ended.
sub beside {
    my @command = @_;
    my $out = own_folder('beside') . '/out';
    my $pid = spawn(cmd => [ $t->{ctl}, @command ], env => $t->pg->env(user => 'op'), dir => '/', out => $out);
    my $status;
    return sub { $status //= $? >> 8 if !defined $status && waitpid($pid, POSIX::WNOHANG()) == $pid; return defined $status ? ($status, slurp($out)) : () };
}

like(lines('epoch', 'show'), qr/writer epoch 1/, 'at first');
is(decode_json(lines('epoch', 'show', '--json'))->{writer_epoch}, 1, 'as JSON');

subtest 'what is not understood' => sub {
    for ([ 2, qr/show, raise or drain/, 'epoch' ], [ 2, qr/show, raise or drain/, 'epoch', 'lower' ], [ 2, qr/--to/, 'epoch', 'raise', '--to', 'x' ],
        [ 2, qr/--wait/, 'epoch', 'drain', '--wait', 'long' ], [ 1, qr/only be raised/, 'epoch', 'raise', '--to', '1' ]) {
        my ($want, $like, @command) = @$_;
        my ($status, $said) = ctl(@command);
        is($status, $want, "@command");
        like($said, $like, 'says why');
    }
};

subtest 'a reserve in flight when the raise returns does not exist' => sub {
    # An insert of a key that begins with slow takes a second, at a time when its statement has looked at the epoch.
    $t->pg->do(q(CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF NEW.idem_key LIKE 'slow%' THEN PERFORM pg_sleep(1.5); END IF; RETURN NEW; END $$;
        CREATE TRIGGER slow BEFORE INSERT ON idempotency_records FOR EACH ROW EXECUTE FUNCTION slow()));
    my $key = 'slow-' . fresh_key();
    my $waiting = $c->send(POST => '/proxy', key => $key, body => '{}');
    ok(wait_for(sub { $t->pg->value("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'") }, 10), 'a reserve is on its way');
    my $raise = beside('epoch', 'raise');
    my $begun = time;
    # the new epoch counts at once, and nobody waits for the raise
    my $fenced;
    ok(wait_for(sub { $fenced = $c->post('/proxy', key => fresh_key(), body => '{}'); $fenced->status == 503 }, 5), 'others are refused meanwhile');
    problem($fenced, 'writer-fenced');
    ok(!$raise->(), 'the raise has not returned');
    my ($status, $said);
    ok(wait_for(sub { ($status, $said) = $raise->(); defined $status }, 10), 'then it does');
    is($status, 0, 'well') or diag($said);
    is($t->record_count("idem_key = '$key'"), 1, 'and by then the reserve is there');
    is($waiting->response->status, 200, 'and its request is answered: it holds its generation');
    $t->pg->do('DROP TRIGGER slow ON idempotency_records; DROP FUNCTION slow()');
    is($c2->post('/proxy', key => fresh_key(), body => '{}')->status, 200, 'the new server writes');
};

subtest 'with fifty in flight' => sub {
    $t->pg->do('UPDATE idempotency_control SET writer_epoch = 1');
    my $done = fresh_key();
    my $first = $c->post('/proxy', key => $done, body => '{}');
    $t->backend->behave(hold => 1);
    my @keys = map { fresh_key() } 1 .. 50;
    my $effects = () = $t->backend->effects;
    my @running = map { $c->send(POST => '/proxy', key => $_, body => '{}') } @keys;
    ok(wait_for(sub { $t->record_count("status = 'EXECUTING'") == 50 && (() = $t->backend->effects) == $effects + 50 }, 30), 'fifty are running');
    my $begun = time;
    like(lines('epoch', 'raise'), qr/writer epoch 2/, 'raised');
    cmp_ok(time - $begun, '<', 5, 'without waiting for them');
    ran($t, 0, 'the fenced server', sub {
        problem($c->post('/proxy', key => fresh_key(), body => '{}'), 'writer-fenced');
        is_replay($c->post('/proxy', key => $done, body => '{}'), $first, 'it still replays');
        problem($c->post('/proxy', key => $keys[0], body => '{}'), 'in-progress', operation => 1);
    });
    my ($status, $said) = ctl('epoch', 'drain');
    is($status, 1, 'not drained');
    like($said, qr/50 operations of older writers/, 'says how many');
    my $drain = beside('epoch', 'drain', '--wait', '30s');
    $t->backend->release;
    my @answers = map { $_->response } @running;
    is((grep { $_->status == 200 } @answers), 50, 'all of them settle');
    ok(wait_for(sub { ($status, $said) = $drain->(); defined $status }, 20), 'and the drain ends');
    is($status, 0, 'well') or diag($said);
    like($said, qr/drained/, 'and says so');
    $t->backend->behave;
    is_replay($c2->post('/proxy', key => $keys[0], headers => [], body => '{}', host => "localhost:" . $t->httpd->port), $answers[0], 'the new server replays what they did');
};

subtest 'what does not end is put aside' => sub {
    $t->pg->do('UPDATE idempotency_control SET writer_epoch = 1');
    $t->backend->behave(hold => 1);
    my $key = fresh_key();
    my $running = $c->send(POST => '/proxy', key => $key, body => '{}');
    ok(wait_for(sub { $t->record_count("status = 'EXECUTING'") == 1 }, 10), 'one is running');
    lines('epoch', 'raise');
    my ($status, $said) = ctl('epoch', 'drain', '--wait', '1', '--quarantine');
    is($status, 0, 'put aside') or diag($said);
    like($said, qr/1 operations are UNKNOWN now/, 'says how many');
    problem($c2->post('/proxy', key => $key, body => '{}', host => 'localhost:' . $t->httpd->port), 'outcome-unknown', operation => 1);
    is($t->pg->value("SELECT actor || ' ' || reason FROM idempotency_events ORDER BY event_id DESC LIMIT 1"), 'ctl:op quarantined: its writer has passed', 'and why');
    lines('epoch', 'drain');
    $t->backend->release;
    is($running->response->status, 200, 'its own client gets the truth');
    is($t->pg->value("SELECT status FROM idempotency_records WHERE idem_key = '$key'"), 'SUCCEEDED', 'and so does the record: its owner knows');
    $t->backend->behave;
};

subtest 'raised under load from two servers' => sub {
    $t->pg->do('UPDATE idempotency_control SET writer_epoch = 1');
    my $same = $c2->with(authority => 'localhost:' . $t->httpd->port);
    my $load = Idem::Load->start($t, clients => [ $c, $same ], workers => 4);
    ok($load->wait_for_more(200, 40), 'under way');
    lines('epoch', 'raise');
    my $made = $t->pg->value('SELECT count(*) FROM idempotency_records WHERE writer_epoch = 1');
    ok($load->wait_for_more(503, 20), 'the old server is fenced');
    ok($load->wait_for_more(200, 40), 'the new one works');
    is($t->pg->value('SELECT count(*) FROM idempotency_records WHERE writer_epoch = 1'), $made, 'no record of the old server came to be after the raise');
    $load->stop;
    $load->holds('all of it');
};
is(($t->ctl('verify'))[0], 0, 'the registry is sound') or diag(($t->ctl('verify'))[1]);
$new->finish(more => 1);
$t->finish;
