# C062: the child that runs an operation is killed, at every point of its way, in every mode: what the client sees at once,
# after the lease, and how often the effect is there, counted in the backend's own table. Half of the retries come to a
# second server of the other kind.
use strict;
use warnings;
use Idem::Orders;
use Idem::Test;

# One row a case: where the child dies (X-Stop or X-Hold: see Idem::Orders), what a retry gets at once and after the
# lease, and the effects there are in the end, when the backend that outlived its child has come to its end, too.
#   in-progress, outcome-unknown: that problem    runs: a new execution, of generation 2    replay: the first answer
my @POINTS = (
    # mode             point                                       at once        after the lease    effects
    [ 'external',      'after the reserve',      'stop handler',   'in-progress', 'outcome-unknown', 0 ],
    [ 'external',      'before the commit',      'hold before',    'in-progress', 'outcome-unknown', 1 ],
    [ 'external',      'after the commit',       'hold after',     'in-progress', 'outcome-unknown', 1 ],
    [ 'external',      'before the settlement',  'stop answered',  'in-progress', 'outcome-unknown', 1 ],
    [ 'external',      'before the first octet', 'stop settled',   'replay',      'replay',          1 ],
    [ 'marked',        'before the dispatch',    'dispatch',       'in-progress', 'runs',            1 ],
    [ 'marked',        'after the dispatch',     'stop handler',   'in-progress', 'outcome-unknown', 0 ],
    [ 'marked',        'after the commit',       'hold after',     'in-progress', 'outcome-unknown', 1 ],
    [ 'marked',        'before the first octet', 'stop settled',   'replay',      'replay',          1 ],
    [ 'transactional', 'after the reserve',      'stop handler',   'in-progress', 'runs',            1 ],
    [ 'transactional', 'before the commit',      'hold before',    'in-progress', 'runs',            1 ],
    [ 'transactional', 'in the middle of its commit', 'hold committing', 'in-progress', 'in-progress', 1 ],
    [ 'transactional', 'after the commit',       'hold after',     'replay',      'replay',          1 ],
    [ 'transactional', 'before the settlement',  'stop answered',  'replay',      'replay',          1 ],
    [ 'transactional', 'before the first octet', 'stop settled',   'replay',      'replay',          1 ],
    [ 'bare',          'after the commit',       'hold after',     'in-progress', 'response-not-stored', 1 ],
    [ 'bare',          'before the first octet', 'stop settled',   'replay',      'replay',          1 ],
    [ 'repeatable',    'after the reserve',      'stop handler',   'in-progress', 'runs',            1 ],
    [ 'repeatable',    'before the commit',      'hold before',    'in-progress', 'runs',            2 ],
    [ 'repeatable',    'after the commit',       'hold after',     'in-progress', 'runs',            2 ],
    [ 'repeatable',    'before the settlement',  'stop answered',  'in-progress', 'runs',            2 ],
    [ 'repeatable',    'before the first octet', 'stop settled',   'replay',      'replay',          1 ],
);
my %MPM = (
    event => "ServerLimit 1\nStartServers 1\nThreadsPerChild 40\nMaxRequestWorkers 40\nMinSpareThreads 1\nMaxSpareThreads 40\n",
    prefork => "ServerLimit 40\nStartServers 30\nMinSpareServers 1\nMaxSpareServers 40\nMaxRequestWorkers 40\n",
);

# A dispatch leaves an event; here that waits for whoever has the lock.
sub slow_dispatch {
    my ($new) = @_;
    $new->do(<<'SQL');
CREATE FUNCTION wait_for_test() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock(1); RETURN NEW; END $$;
CREATE TRIGGER wait_for_test BEFORE INSERT ON idempotency_events FOR EACH ROW WHEN (NEW.reason = 'dispatched') EXECUTE FUNCTION wait_for_test();
SQL
    return $new;
}

my $pg;
for my $mpm (qw(event prefork)) {
    my $orders;
    my $t = Idem::Test->new(pg => $pg, mpm => $mpm, mpm_config => $MPM{$mpm}, start => 0);
    $t->{ctl} //= $pg->socket_dir . '/idempotencyctl' if $pg;
    $pg //= slow_dispatch($t->pg);
    $orders = Idem::Orders->new($t);
    $t->httpd->{config} = $t->expand($orders->load . "IdempotencyStoreTimeout 20s\nIdempotencyLease 60s\n"
        . $orders->place('/external', 'external') . $orders->place('/marked', 'external', 'IdempotencyDispatchMark On')
        . $orders->place('/transactional', 'transactional') . $orders->place('/bare', 'bare')
        . $orders->place('/repeatable', 'repeatable'));
    $t->httpd->start;
    my $twin = $t->twin(mpm => $mpm eq 'event' ? 'prefork' : 'event', config => $t->httpd->{config}, httpd => { env => $t->httpd->{env} });
    $twin->httpd->start;
    my ($c, $both) = ($t->client->with(authority => 'shop.example'), $t->both);
    my $dispatches = $pg->session;

    # Every case goes to its point, side by side; the one before its dispatch waits for a lock of the database.
    my @cases = map { { mode => $_->[0], name => "$mpm, $_->[0], $_->[1]", at => $_->[2], now => $_->[3], then => $_->[4],
        effects => $_->[5], key => fresh_key(), tag => join('-', $mpm, $_->[0], $_->[1]) =~ tr/ /-/r } } @POINTS;
    for my $case (sort { ($a->{at} eq 'dispatch') <=> ($b->{at} eq 'dispatch') } @cases) {
        if ($case->{at} eq 'dispatch') {
            ok(wait_for(sub { !grep { $_->{at} ne 'dispatch' && !$orders->reached($_->{tag}) } @cases }, 30), "$mpm: every case is at its point")
                or diag(map { "$_->{name}\n" } grep { $_->{at} ne 'dispatch' && !$orders->reached($_->{tag}) } @cases);
            $dispatches->run('SELECT pg_advisory_lock(1)');
        }
        my ($kind, $point) = split / /, $case->{at};
        $case->{connection} = $c->send(POST => "/$case->{mode}", key => $case->{key}, body => '{"amount":10}',
            headers => $point ? [ ($kind eq 'stop' ? 'X-Stop' : 'X-Hold') => "$point $case->{tag}" ] : []);
    }
    ok(wait_for(sub { $pg->value("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted") > 0 }),
        "$mpm: the dispatch is on its way");
    is($t->record_count("status = 'RESERVED' AND route = 'marked'"), 1, "$mpm: and not there");

    # The server's children die, all at once; what they have started lives on.
    $_->{operation} = $pg->value("SELECT operation_id FROM idempotency_records WHERE idem_key = '$_->{key}'") for @cases;
    my @children = $t->httpd->children;
    my @dead = map { $_->{owner} } $pg->query('SELECT owner FROM idempotency_owners WHERE pid IN (' . join(',', @children) . ')');
    kill KILL => @children;
    ok(wait_for(sub { !grep { kill 0 => $_ } @children }), "$mpm: the children are dead");
    # A statement that was sent may still be done: here it is not.
    $pg->do("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted");
    $dispatches->run('SELECT pg_advisory_unlock(1)');
    ok(wait_for(sub { $t->httpd->answers && $t->httpd->children }), "$mpm: there are new ones");

    # All are tried again, side by side; then what each must have got.
    my $retry = sub {
        my $n = 0;
        my @res = $both->parallel(map { [ POST => "/$_->{mode}", key => $_->{key}, body => '{"amount":10}' ] } @cases);
        $_->{res} = $res[ $n++ ] for @cases;
    };
    my $check = sub {
        my ($case, $want, $when) = @_;
        my $res = $case->{res};
        my $name = "$case->{name}, $when";
        if ($want eq 'replay') {
            is($res->status, 201, "$name: the answer");
            ok($res->replayed, "$name: a replay");
            is($res->json->{generation}, $case->{ran} || 1, "$name: of what ran") or diag($res->body);
        }
        elsif ($want eq 'runs') {
            is($res->status, 201, "$name: runs") or diag($res->body);
            ok(!$res->replayed, "$name: now");
            is($res->json->{generation}, $case->{next} || 2, "$name: as the next generation");
            is($res->operation, $case->{operation}, "$name: of the same operation");
            $case->{ran} = 2;
        }
        elsif ($want eq 'response-not-stored') {
            # its backend has said nothing of its response, so no status can be told
            is($res->status . ' ' . ($res->json->{type} // ''), "409 tag:mod-idempotency,2026:$want", "$name: $want");
        }
        else {
            problem($res, $want, operation => 1);
        }
        return;
    };
    $retry->();
    subtest "$mpm: at once" => sub { $check->($_, $_->{now}, 'at once') for @cases };
    # The lease is over, as far as the store's clock can tell (lease.t waits for it).
    $pg->do("UPDATE idempotency_owners SET seen_at = seen_at - interval '60s' WHERE owner IN (" . join(',', map { "'$_'" } @dead) . ')');
    $retry->();
    subtest "$mpm: after the lease" => sub { $check->($_, $_->{then}, 'after the lease') for @cases };

    # The scripts that have outlived their children come to their end.
    my @outlived = grep { $_->{at} =~ /^hold/ } @cases;
    $orders->go(map { $_->{tag} } @outlived);
    ok(wait_for(sub { !grep { !-e "$orders->{dir}/$_->{tag}.end" } @outlived }), "$mpm: the old scripts have ended");
    $retry->();
    subtest "$mpm: in the end" => sub {
        for my $case (@cases) {
            $check->($case, $case->{then} =~ /runs|in-progress/ ? 'replay' : $case->{then}, 'in the end');
            is($orders->count($case->{operation}), $case->{effects}, "$case->{name}: effects");
            is($orders->outbox($case->{operation}), $case->{effects}, "$case->{name}: outbox rows") if $case->{mode} eq 'transactional';
        }
    };

    # Somebody has looked at the backend's own table, and says what he found.
    my @unknown = grep { $_->{then} eq 'outcome-unknown' } @cases;
    spew($t->root . '/found', '{"found":true}', 0644);
    for my $case (@unknown) {
        my ($status, $said) = $t->ctl('resolve', $case->{operation}, '--reason', 'looked at the orders', $case->{effects}
            ? ('--succeeded', '--code', 201, '--header', 'Content-Type: application/json', '--body-file', $t->root . '/found')
            : ('--not-executed', '--owner-is-dead'));
        is($status, 0, "$case->{name}: resolved") or diag($said);
    }
    $retry->();
    subtest "$mpm: after resolve" => sub {
        for my $case (@unknown) {
            if ($case->{effects}) {
                is($case->{res}->status . ' ' . $case->{res}->body, '201 {"found":true}', "$case->{name}: what was found");
                ok($case->{res}->replayed, "$case->{name}: as a replay");
            }
            else {
                $case->{next} = 3; # the verdict has taken one
                $check->($case, 'runs', 'after resolve');
            }
            is($orders->count($case->{operation}), 1, "$case->{name}: one effect, now and for ever");
        }
    };
    like(slurp("$orders->{dir}/$mpm-transactional-before-the-commit.end"), qr/IDEM1/, "$mpm: the old transaction was refused, and rolled back");
    $t->httpd->expect_log(qr/IDEM0401/);
    $t->httpd->allow_log(qr/exit signal Killed|AH00052|AH01265|AH02429|AH00484|AH00161|AH00288/);
    $t->allow_pg_log(qr/lock timeout|administrator command|IDEM1|generation|connection to client lost|idempotency_/);
    $t->finish(more => $mpm eq 'event');
}
