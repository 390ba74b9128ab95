# IdempotencyReplayCache: final answers out of memory, where the registry would be asked; what must not come out of it,
# and what has to be honoured in half a minute. Whatever comes without its record, or without a database, comes from there.
use strict;
use warnings;
use Idem::Test;
use JSON::PP ();
use Time::HiRes qw(time);

my $body = '{"amount":10}';
my $who = "IdempotencyTenant const:shop\n    IdempotencyPrincipal user";
my $place = sub { my ($path, @route) = @_; return protected({ who => $who }, $path, @route) };
my $routes = $place->('/charges', 'charges.create', 'IdempotencyLease 1s') . $place->('/short', 'short', 'IdempotencyRetention 2s');
my $versioned = sub { my ($revision) = @_; return $place->('/versioned', "versioned $revision", 'IdempotencyFingerprintHost Off') };
my $t = Idem::Test->new(start => 0);
my $pg = $t->pg;
$pg->do('CREATE DATABASE second');
{
    local $pg->{database} = 'second';
    $t->ctl('migrate');
}
my $config = sub {
    my ($host) = ("<VirtualHost 127.0.0.1:\@PORT\@>\nServerName");
    return $t->expand(join "\n", 'LogLevel idempotency:debug', "$host localhost", $routes, $versioned->('revision=1'), '</VirtualHost>',
        "$host none", 'IdempotencyReplayCache None', $routes, '</VirtualHost>',
        "$host small", 'IdempotencyReplayCache shmcb:run/small(64K)', $routes, '</VirtualHost>',
        "$host later", 'IdempotencyStore localhost', $versioned->('revision=2 accepts=1'), '</VirtualHost>',
        "$host second", $t->httpd->dbd_text($pg, 'web') =~ s/dbname=\S+/dbname=second/r, $versioned->('revision=1'), '</VirtualHost>');
};
$t->httpd->{config} = $config->();
$t->httpd->start;
my $c = $t->client;
my %on = map { $_ => $c->with(authority => $_) } qw(none small later second);
sub charge { my ($key, %arg) = @_; my $client = delete $arg{on} // $c; return $client->post('/charges', key => $key, body => $body, %arg) }
# The registry forgets, behind everybody's back.
sub forget { $pg->do("DELETE FROM idempotency_records WHERE idem_key = '$_[0]'") }
sub past { my ($key) = @_; return ok(wait_for(sub { $pg->value("SELECT expires_at <= now() FROM idempotency_records WHERE idem_key = '$key'") eq 't' }, 10), 'expired') }

# What half a minute has to end: it is looked at again at the end.
my %old = (erased => charge('erased'));
is(($t->ctl('erase', '--tenant', 'shop', '--now'))[0], 0, 'the tenant is erased');
is($t->record_count, 0, 'and has nothing left');
$old{lowered} = charge('lowered');
my $begun = time;
$pg->do(q(UPDATE idempotency_records SET expires_at = now() WHERE idem_key = 'lowered'));
is_replay(charge($_), $old{$_}, "$_: known for a while") for sort keys %old;

subtest 'the answer of the first request, from memory' => sub {
    my $first = charge('memory');
    forget('memory');
    ran($t, 0, 'retries on many connections, to both children', sub {
        is_replay($_, $first, 'a retry') for $c->parallel(map { [ POST => '/charges', key => 'memory', body => $body ] } 1 .. 8);
    });
};

subtest 'a failure that is final, and nothing that is not' => sub {
    my $failed = $c->post('/charges?status=404', key => 'failed', body => $body);
    my $doubt = $c->post('/charges?status=500', key => 'doubt', body => $body);
    my $rejected = $c->post('/charges?status=429', key => 'rejected', body => $body);
    forget($_) for qw(failed doubt rejected);
    ran($t, 0, 'FAILED_FINAL', sub { is_replay($c->post('/charges?status=404', key => 'failed', body => $body), $failed, 'a retry') });
    ran($t, 2, 'UNKNOWN and REJECTED', sub { $c->post("/charges?status=$_->[0]", key => $_->[1], body => $body) for [ 500, 'doubt' ], [ 429, 'rejected' ] });
};

subtest 'what the registry has given is kept too' => sub {
    my $doubt = $c->post('/charges?status=500', key => 'resolved', body => $body);
    is(($t->ctl('resolve', $doubt->operation, '--succeeded', '--code', 201, '--reason', 'seen'))[0], 0, 'resolved');
    my $given = $c->post('/charges?status=500', key => 'resolved', body => $body);
    is($given->status, 201, 'the answer that was given to it');
    forget('resolved');
    ran($t, 0, 'from memory', sub { is($c->post('/charges?status=500', key => 'resolved', body => $body)->status, 201, 'the same') });
    $doubt = $c->post('/charges?status=500', key => 'answered', body => $body);
    is(($t->ctl('resolve', $doubt->operation, '--as-answered', '--reason', 'seen'))[0], 0, 'resolved as answered');
    my $replay = $c->post('/charges?status=500', key => 'answered', body => $body);
    is($replay->status, 500, 'the answer that was kept');
    is($replay->operation, $doubt->operation, 'of that operation');
    forget('answered');
    ran($t, 0, 'from memory', sub { is($c->post('/charges?status=500', key => 'answered', body => $body)->operation, $doubt->operation, 'the same') });
};

subtest 'nobody else gets it' => sub {
    my $first = charge('mine');
    problem(charge('mine', body => '{"amount":11}'), 'key-reused', operation => 1);
    problem($c->post('/charges?x=1', key => 'mine', body => $body), 'key-reused', operation => 1);
    ran($t, 1, 'another principal', sub { ok(!charge('mine', user => 'b')->replayed, 'runs') });
    # the very same request, fingerprint and all
    my @there = map { my $client = $_; sub { $client->post('/versioned', key => 'there', body => $body) } } $c, $on{second};
    my $here = $there[0]->();
    is_replay($there[0]->(), $here, 'in this registry');
    ran($t, 1, 'another registry, by the same names', sub { isnt($there[1]->()->operation, $here->operation, 'runs') });
    is(charge('mine', user => undef)->status, 401, 'no user, no answer');
    forget('mine');
    ran($t, 1, 'a body that differs, without the record', sub { ok(!charge('mine', body => '{"amount":11}')->replayed, 'runs: the registry was asked') });
};

subtest 'no longer than it is kept' => sub {
    my $first = $c->post('/short', key => 'short', body => $body);
    is_replay($c->post('/short', key => 'short', body => $body), $first, 'kept');
    past('short');
    problem($c->post('/short', key => 'short', body => $body), 'key-expired', operation => 1);
};

subtest 'an older revision, under its own tuple' => sub {
    my $first = $c->post('/versioned', key => 'v', body => $body);
    ran($t, 0, 'by a route that accepts it', sub { is_replay($on{later}->post('/versioned', key => 'v', body => $body), $first, 'found by the registry') });
    forget('v');
    ran($t, 0, 'without the record', sub { is_replay($_->post('/versioned', key => 'v', body => $body), $first, 'from memory') for $on{later}, $c });
    $first = $c->post('/versioned', key => 'v2', body => $body);
    forget('v2');
    ran($t, 1, 'what did not decide among several', sub { ok(!$on{later}->post('/versioned', key => 'v2', body => $body)->replayed, 'runs: the registry was asked') });
};

subtest 'None' => sub {
    my $first = charge('without', on => $on{none});
    is_replay(charge('without', on => $on{none}), $first, 'a replay, by the registry');
    forget('without');
    ran($t, 1, 'without the record', sub { charge('without', on => $on{none}) });
};

subtest 'a small one that is full, and answers too large for it' => sub {
    my @first = map { charge("full$_", on => $on{small}) } 1 .. 120;
    is(scalar(grep { $_->status != 200 } @first), 0, 'all have run');
    is_replay(charge('full1', on => $on{small}), $first[0], 'what was forgotten comes from the registry');
    forget('full120');
    ran($t, 0, 'the newest', sub { is_replay(charge('full120', on => $on{small}), $first[119], 'is there') });
    forget('full2');
    ran($t, 1, 'the oldest', sub { charge('full2', on => $on{small}) });
    my $large = $on{small}->post('/charges?size=4000', key => 'large', body => $body);
    is(length $large->body, 4000, 'a large answer');
    is_replay($on{small}->post('/charges?size=4000', key => 'large', body => $body), $large, 'by the registry');
    forget('large');
    ran($t, 1, 'not kept', sub { $on{small}->post('/charges?size=4000', key => 'large', body => $body) });
};

# Writes to the memory that the children of httpd share, where this text stands; how often it did.
sub damage {
    my ($text) = @_;
    my $pid = ($t->httpd->children)[0];
    my $times = 0;
    no warnings 'portable'; # addresses have 64 bits
    open my $memory, '+<:raw', "/proc/$pid/mem" or die "memory of $pid: $!\n";
    for (split /\n/, slurp("/proc/$pid/maps")) {
        my ($from, $to) = /^([0-9a-f]+)-([0-9a-f]+) rw-s/ or next;
        my ($start, $octets) = (hex $from, '');
        sysseek $memory, $start, 0;
        sysread $memory, $octets, hex($to) - $start or next;
        for (my $at = -1; ($at = index $octets, $text, $at + 1) >= 0; $times++) {
            sysseek $memory, $start + $at, 0;
            syswrite $memory, 'X';
        }
    }
    return $times;
}

subtest 'an entry that is damaged' => sub {
    my $first = charge('damaged');
    ok(damage($first->body), 'its memory is written to');
    is_replay(charge('damaged'), $first, 'the registry has the answer');
    ok(damage($first->body), 'again');
    forget('damaged');
    ran($t, 1, 'without the record', sub { charge('damaged') });
};

subtest 'without the database' => sub {
    my $first = charge('away');
    $pg->stop('immediate');
    ran($t, 0, 'while it is away', sub {
        is_replay(charge('away'), $first, 'a known answer');
        problem(charge('away', body => '{"amount":11}'), 'store-unavailable');
        problem(charge('away', user => 'b'), 'store-unavailable');
        problem(charge('new'), 'store-unavailable');
        problem(charge('away', on => $on{none}), 'store-unavailable');
    });
    $pg->start;
    ok($t->found_again($c, POST => '/charges', body => $body), 'it is back');
    is(charge('new')->status, 200, 'and what was refused can run');
    problem(charge('away', body => '{"amount":11}'), 'key-reused', operation => 1);
};
$t->allow_pg_log(qr/FATAL:  the database system is (?:starting up|shutting down|not yet accepting)/, qr/WARNING:  terminating connection/, qr/interrupted|was not properly shut down/);
$t->httpd->allow_log(qr/dbd:|IDEM09\d\d/);

subtest 'another epoch' => sub {
    my $first = charge('epoch');
    is(($t->ctl('epoch', 'raise', '--to', 2))[0], 0, 'raised');
    ran($t, 0, 'a writer that has passed', sub {
        is_replay(charge('epoch'), $first, 'may replay');
        problem(charge('epoch-new'), 'writer-fenced');
    });
    $pg->do('UPDATE idempotency_control SET writer_epoch = 1');
};

subtest 'prefork' => sub {
    my $p = Idem::Test->new(mpm => 'prefork', pg => $pg, config => $routes);
    my $first = $p->client->post('/charges', key => 'prefork', body => $body);
    forget('prefork');
    ran($p, 0, 'every child', sub {
        is_replay($_, $first, 'a retry') for $p->client->parallel(map { [ POST => '/charges', key => 'prefork', body => $body ] } 1 .. 8);
    });
    $p->finish(more => 1);
};

subtest 'without mod_socache_shmcb' => sub {
    my $without = Idem::Test->new(pg => $pg, httpd => { without => ['socache_shmcb'] }, config => $routes);
    my $first = $without->client->post('/charges', key => 'module', body => $body);
    is_replay($without->client->post('/charges', key => 'module', body => $body), $first, 'a replay, by the registry');
    forget('module');
    ran($without, 1, 'without the record', sub { $without->client->post('/charges', key => 'module', body => $body) });
    is(scalar(() = $without->httpd->log =~ /IDEM2201/g), 1, 'one line says so');
    $without->finish(more => 1);
};
subtest 'in half a minute' => sub {
    my ($last, $res) = ($begun);
    my $before = () = $t->backend->effects;
    ok(wait_for(sub { my $sent = time; $res = charge('erased'); $last = $sent if $res->replayed; return !$res->replayed }, 60), 'what was erased is not known any more');
    cmp_ok($last - $begun, '<', 30.5, 'after half a minute');
    is((() = $t->backend->effects) - $before, 1, 'and runs once');
    ok(wait_for(sub { $res = charge('lowered'); return !$res->replayed }, 60), 'nor what has expired since');
    problem($res, 'key-expired', operation => 1);
};

subtest 'a graceful restart begins anew' => sub {
    my $first = charge('graceful');
    $t->httpd->graceful;
    is_replay(charge('graceful'), $first, 'the registry has the answer');
    forget('graceful');
    ran($t, 0, 'then it is kept', sub { is_replay(charge('graceful'), $first, 'from memory') });
    $t->httpd->graceful;
    ran($t, 1, 'without the record', sub { charge('graceful') });
};
$t->finish;
