# Who has become somebody else finds the operations of both; and revisions that a route still accepts.
use strict;
use warnings;
use Idem::Test;
use JSON::PP ();

my $claim = <<'LUA';
function claim(r)
    local value = r.headers_in['X-Claim']
    if value then r.subprocess_env['CLAIM'] = value end
    return apache2.DECLINED
end
LUA
my $who = sub { my ($t) = @_; "IdempotencyTenant env:CLAIM\n    IdempotencyPrincipal user\n    LuaHookAuthChecker $t->{root}/claim.lua claim" };
my $revision = 'revision=1';
my $text = sub {
    my ($t) = @_;
    # records are changed by hand here; and prefork starts children, each with a connection to open, while the command locks
    return join q(), "IdempotencyReplayCache None\nIdempotencyStoreTimeout 10s\n", protected({ who => $who->($t) }, '/charges', 'charges.create', 'IdempotencyLease 2s'),
        protected({ who => $who->($t) }, '/short', 'short', 'IdempotencyRetention 0s', 'IdempotencyReuse Allow', 'IdempotencyTombstone 0s'),
        protected({ who => $who->($t) }, '/upgraded', "upgraded $revision"),
        "<Location /operations>\n\@AUTH\@\nSetHandler idempotency-operation\n" . $who->($t) . "\n</Location>\n";
};
my $t = Idem::Test->new(modules => ['lua'], config => sub { spew($_[0]->root . '/claim.lua', $claim, 0644); $text->($_[0]) });
my $twin = $t->twin(mpm => 'prefork');
my $c = $t->both;
my $body = '{"amount":10}';

# A request of tenant T as user a or b.
sub as { my ($tenant, $place, $key, %arg) = @_; return $c->post($place, key => $key, body => $body, headers => [ 'X-Claim' => $tenant ], %arg) }

sub alias {
    my ($from, $to, %arg) = @_;
    return $t->ctl('alias', 'add', '--from-tenant', $from->[0], '--from-principal', $from->[1], '--to-tenant', $to->[0], '--to-principal', $to->[1], '--until', $arg{until} // '2099-01-01', '--reason', 'a test');
}

sub aliased { my ($status, $said) = alias(@_); is($status, 0, 'alias add') or diag($said) }

subtest 'an account moves to another tenant' => sub {
    my $old = as('old', '/charges', 'moved');
    my $only = as('old', '/charges', 'only');
    aliased([ 'old', 'a' ], [ 'new', 'a' ]);
    ran($t, 0, 'a retry', sub {
        is_replay(as('new', '/charges', 'moved'), $old, 'under the new identity');
        is_replay(as('old', '/charges', 'only'), $only, 'under the old one');
        is_replay(as('new', '/charges', 'only'), $only, 'under the new one');
        problem(as('new', '/charges', 'moved', body => '{"amount":11}'), 'key-reused');
        problem(as('old', '/charges', 'moved', body => '{"amount":11}'), 'key-reused');
    });
    my $first;
    ran($t, 1, 'a new operation by the old token', sub { $first = as('old', '/charges', 'after'); is_replay(as('new', '/charges', 'after'), $first, 'then the new one') });
    is(($t->records("idem_key = 'after'"))[0]{tenant_id}, 'new', 'it is written under the newest');
    ran($t, 1, 'the other way round', sub { $first = as('new', '/charges', 'after2'); is_replay(as('old', '/charges', 'after2'), $first, 'then the old one') });
    is($t->record_count("tenant_id = 'old' AND idem_key LIKE 'after%'"), 0, 'nothing more under the old one');
    is($t->record_count("tenant_id = 'old'"), 2, 'no record was rewritten');
    ran($t, 1, 'somebody else of the old tenant', sub { my $other = as('old', '/charges', 'moved', user => 'b'); is($other->status, 200, 'runs'); ok(!$other->replayed, 'and gets nothing of it') });
    my $operation = $c->get('/operations/' . $old->operation, headers => [ 'X-Claim' => 'new' ]);
    is($operation->json->{state}, 'SUCCEEDED', 'the operation is shown to the new identity');
    is($c->get('/operations/' . $old->operation, user => 'b', headers => [ 'X-Claim' => 'new' ])->status, 404, 'and to nobody else');
};

subtest 'old and new token at the same time' => sub {
    for my $round (1 .. 4) {
        my ($key, @responses) = (fresh_key());
        ran($t, 1, "round $round", sub {
            @responses = $c->parallel(map { [ POST => '/charges?sleep=0.2', key => $key, body => $body, headers => [ 'X-Claim' => $_ ] ] } ($round % 2 ? qw(old new old new old new) : qw(new old old new new old)));
        });
        is(join(',', map { $_->status } grep { $_->status != 200 && $_->status != 409 } @responses), '', 'each runs, replays or waits');
        my %ids = map { $_->json->{id} => 1 } grep { $_->status == 200 } @responses;
        is(scalar(keys %ids), 1, 'one result');
    }
};

subtest 'an alias that comes while the old identity is at work' => sub {
    for my $round (1 .. 3) {
        my ($old, $new) = ("m$round-old", "m$round-new");
        my @keys = map { fresh_key() } 1 .. 24;
        # requests under way on many connections while the command runs, and more by both tokens right after it
        my @early = map { $c->send(POST => '/charges?sleep=0.1', key => $_, body => $body, headers => [ 'X-Claim' => $old ]) } @keys[ 0 .. 11 ];
        aliased([ $old, 'a' ], [ $new, 'a' ]);
        my @late = map { ($c->send(POST => '/charges?sleep=0.1', key => $_, body => $body, headers => [ 'X-Claim' => $old ]), $c->send(POST => '/charges?sleep=0.1', key => $_, body => $body, headers => [ 'X-Claim' => $new ])) } @keys[ 12 .. 23 ];
        my @again = map { $c->send(POST => '/charges?sleep=0.1', key => $_, body => $body, headers => [ 'X-Claim' => $new ]) } @keys[ 0 .. 11 ];
        my @responses = map { $_->response } @early, @late, @again;
        is(join(',', grep { $_ != 200 && $_ != 409 } map { $_->status } @responses), '', "round $round: each runs, replays or waits");
        my %effects;
        $effects{ $_->{key} =~ s/"//gr }++ for $t->backend->effects;
        is(join(',', map { $effects{$_} // 0 } @keys), join(',', (1) x 24), "round $round: every key has run once");
        ran($t, 0, "round $round, afterwards", sub { is(as($_ % 2 ? $old : $new, '/charges?sleep=0.1', $keys[$_])->status, 200, 'a replay') for 0 .. 23 });
    }
};

$t->allow_pg_log(qr{ERROR:  canceling statement due to lock timeout}); # its short tries, and requests that wait behind them
subtest 'an alias waits for reserves in flight' => sub {
    my $kept = as('lock-old', '/charges', 'kept');
    my $session = $t->pg->session;
    $session->run('BEGIN');
    $session->run("UPDATE idempotency_records SET route = route WHERE idem_key = 'kept'");
    my $version = sub { $t->pg->value('SELECT alias_version FROM idempotency_control') };
    my $before = $version->();
    my $pid = spawn(cmd => [ $t->{ctl}, qw(alias add --from-tenant lock-old --from-principal a --to-tenant lock-new --to-principal a --until 2099-01-01 --reason test) ], env => $t->pg->env, dir => '/');
    ok(wait_for(sub { $t->pg->value("SELECT count(*) FROM pg_locks WHERE NOT granted AND mode = 'ShareRowExclusiveLock'") }), 'it waits');
    is($version->(), $before, 'and nothing has changed');
    ran($t, 1, 'others meanwhile', sub { is(as('lock-else', '/charges', 'k')->status, 200, 'are served') });
    $session->run('COMMIT');
    ok(wait_for(sub { !alive($pid) }), 'it ends then');
    is($version->(), $before + 1, 'and has added the alias');
    is_replay(as('lock-new', '/charges', 'kept'), $kept, 'a retry');
};

subtest 'the record of this very request decides' => sub {
    as('x-old', '/charges', 'both', body => '{"amount":1}');
    my $mine = as('x-old', '/charges', 'deep');
    my $new = as('x-new', '/charges', 'both', body => '{"amount":2}');
    aliased([ 'x-old', 'a' ], [ 'x-new', 'a' ]);
    ran($t, 0, 'one key, two records', sub {
        is(as('x-new', '/charges', 'both', body => '{"amount":1}')->status, 200, 'the older one');
        is_replay(as('x-new', '/charges', 'both', body => '{"amount":2}'), $new, 'the newer one');
        is_replay(as('x-old', '/charges', 'both', body => '{"amount":2}'), $new, 'the newer one, by the old token');
        my $refused = as('x-new', '/charges', 'both', body => '{"amount":3}');
        problem($refused, 'key-reused');
        is($refused->operation, $new->operation, 'neither: the nearest');
        # a record that nobody can compare may be the one of this very request
        $t->pg->do(q(UPDATE idempotency_records SET recipe = '2 later' WHERE tenant_id = 'x-old' AND idem_key = 'both'));
        problem(as('x-new', '/charges', 'both', body => '{"amount":1}'), 'outcome-unknown');
        problem(as('x-new', '/charges', 'both', body => '{"amount":3}'), 'outcome-unknown');
        is_replay(as('x-new', '/charges', 'both', body => '{"amount":2}'), $new, 'one that can be, and is');
    });
};

subtest 'an operation that runs while its caller changes' => sub {
    $t->backend->behave(hold => 1);
    my $before = () = $t->backend->effects;
    my $running = $c->send(POST => '/charges', key => 'running', body => $body, headers => [ 'X-Claim' => 'r-old' ]);
    wait_for(sub { (() = $t->backend->effects) > $before }) or die "it does not run\n";
    aliased([ 'r-old', 'a' ], [ 'r-new', 'a' ]);
    ran($t, 0, 'the new identity', sub { problem(as('r-new', '/charges', 'running'), 'in-progress') });
    $t->backend->release;
    my $first = $running->response;
    $t->backend->behave;
    is_replay(as('r-new', '/charges', 'running'), $first, 'when it has ended');
    $t->pg->do("UPDATE idempotency_records SET status = 'UNKNOWN', outcome = 'unknown', expires_at = NULL, tombstone_until = NULL WHERE idem_key = 'running'");
    problem(as('r-new', '/charges', 'running'), 'outcome-unknown');
    problem(as('r-old', '/charges', 'running'), 'outcome-unknown');
};

subtest 'chains' => sub {
    my @first = map { as("c$_", '/charges', "of-$_") } 1 .. 5;
    aliased([ "c$_", 'a' ], [ 'c' . ($_ + 1), 'a' ]) for 1 .. 4;
    ran($t, 0, 'four aliases', sub {
        for my $n (1 .. 5) { is_replay(as("c$_", '/charges', "of-$n"), $first[ $n - 1 ], "c$_, the key of c$n") for 1, 3, 5 }
    });
    my %refused = ('a fifth' => [ [ 'c5', 'a' ], [ 'c6', 'a' ], qr/at most 4/ ], 'a second successor' => [ [ 'c2', 'a' ], [ 'c9', 'a' ], qr/successor/ ],
        'a cycle' => [ [ 'c5', 'a' ], [ 'c1', 'a' ], qr/cycle/ ], 'itself' => [ [ 'z', 'a' ], [ 'z', 'a' ], qr/itself/ ], 'a date that has passed' => [ [ 'z', 'a' ], [ 'y', 'a' ], qr/--until/, until => '2001-01-01' ]);
    for my $name (sort keys %refused) {
        my ($from, $to, $words, @more) = @{ $refused{$name} };
        my $version = $t->pg->value('SELECT alias_version FROM idempotency_control');
        my ($status, $said) = alias($from, $to, @more);
        is($status, 1, "$name is refused");
        like($said, $words, 'with the reason');
        is($t->pg->value('SELECT alias_version FROM idempotency_control'), $version, 'and nothing has changed');
    }
    my ($status, $said) = $t->ctl('alias', 'list', '--json');
    my @list = map { JSON::PP->new->utf8->decode($_) } split /\n/, $said;
    is_deeply([ map { "$_->{from_tenant} $_->{to_tenant}" } grep { $_->{from_tenant} =~ /^c/ } @list ], [ 'c1 c2', 'c2 c3', 'c3 c4', 'c4 c5' ], 'alias list');
};

subtest 'the end of an alias' => sub {
    my $remove = sub { $t->ctl('alias', 'remove', '--from-tenant', $_[0], '--from-principal', 'a') };
    my ($status, $said) = $remove->('old');
    is($status, 1, 'not while records are remembered');
    like($said, qr/still remembered/, 'which is what it says');
    aliased([ 'empty', 'a' ], [ 'full', 'a' ]);
    as('full', '/charges', 'mine');
    is(($remove->('empty'))[0], 0, 'with nothing behind it');
    ran($t, 1, 'then they are two again', sub { is(as('empty', '/charges', 'mine')->status, 200, 'runs') });
    is(($remove->('empty'))[0], 1, 'once');
    as('gone', '/short', 'k');
    aliased([ 'gone', 'a' ], [ 'here', 'a' ]);
    ran($t, 1, 'a key of the old identity that may be used again', sub { is(as('here', '/short', 'k')->status, 200, 'runs') });
    is_deeply([ sort map { $_->{tenant_id} } $t->records("route = 'short' AND idem_key = 'k'") ], [ 'gone', 'here' ], 'and is written under the newest');
    is(($remove->('gone'))[0], 0, 'nothing running is behind it');
    is(($t->ctl(qw(alias add --from-tenant p --from-principal iss1 --from-principal sub --to-tenant p --to-principal=iss2 --to-principal=sub --until 2099-01-01 --reason parts)))[0], 0, 'a principal of several parts');
    is($t->pg->value("SELECT replace(old_principal || ' ' || new_principal, E'\\x1e', '+') FROM idempotency_aliases WHERE old_tenant = 'p'"), 'iss1+sub iss2+sub', 'in its stored form');
    is(($t->ctl('alias', 'add', '--from-tenant', 'x'))[0], 2, 'what is missing is wrong usage');
    is(($t->ctl('alias', 'add', '--from-tenant', "a\tb", '--from-principal', 'x', '--to-tenant', 'y', '--to-principal', 'z', '--until', '2099-01-01', '--reason', 'r'))[0], 2, 'and so are control characters');
};

subtest 'an alias ends by itself at its date, where nothing is remembered behind it' => sub {
    my $kept = as('until-kept', '/charges', 'k');
    my $soon = $t->pg->value(q(SELECT now() + interval '2 s'));
    aliased([ 'until-kept', 'a' ], [ 'until-kept2', 'a' ], until => $soon);
    aliased([ 'until-old', 'a' ], [ 'until-new', 'a' ], until => $soon);
    aliased([ 'until-older', 'a' ], [ 'until-old', 'a' ]);
    my ($first, $running);
    ran($t, 1, 'until then', sub { $first = as('until-new', '/charges', 'k'); is_replay(as('until-old', '/charges', 'k'), $first, 'they are one') });
    my $version = $t->pg->value('SELECT alias_version FROM idempotency_control');
    my $there = sub { join ' ', map { $_->{old_tenant} } $t->pg->query(q(SELECT old_tenant FROM idempotency_aliases WHERE old_tenant LIKE 'until-%' ORDER BY 1)) };
    ok(wait_for(sub { $there->() !~ /until-old\b/ }, 20), 'then it is gone') or diag($there->());
    cmp_ok($t->pg->value('SELECT now()'), 'gt', $soon, 'not before');
    is($there->(), 'until-kept until-older', 'one that something is remembered behind stays, and one whose date has not come');
    is($t->pg->value('SELECT alias_version FROM idempotency_control'), $version + 1, 'every server learns of it');
    ran($t, 1, 'they are two', sub { my $again = as('until-old', '/charges', 'k'); is($again->status, 200, 'runs'); ok(!$again->replayed, 'by itself') });
    ran($t, 0, 'what is remembered is found', sub { is_replay(as('until-kept2', '/charges', 'k'), $kept, 'under the new identity'); is_replay(as('until-new', '/charges', 'k'), $first, 'and each finds its own') });
};

subtest 'a route that accepts an older revision' => sub {
    my $first = as('rev', '/upgraded', 'k1');
    my $other = as('rev', '/upgraded', 'k2', body => '{"amount":2}');
    $revision = 'revision=2 accepts=1';
    $_->httpd->graceful(config => $_->expand($text)) for $t, $twin;
    my $new;
    ran($t, 1, 'across an upgrade', sub {
        is_replay(as('rev', '/upgraded', 'k1'), $first, 'an old client\'s retry');
        problem(as('rev', '/upgraded', 'k2'), 'key-reused');
        $new = as('rev', '/upgraded', 'k3');
        is($new->status, 200, 'a new operation runs');
    });
    is(($t->records("idem_key = 'k3'"))[0]{api_revision}, '2', 'under the new revision');
    aliased([ 'rev', 'a' ], [ 'rev2', 'a' ]);
    ran($t, 0, 'together with an alias', sub { is_replay(as('rev2', '/upgraded', 'k1'), $first, 'of the old revision and the old identity'); is_replay(as('rev2', '/upgraded', 'k3'), $new, 'of the new revision') });
    $revision = 'revision=2';
    $_->httpd->graceful(config => $_->expand($text)) for $t, $twin;
    ran($t, 1, 'without accepts', sub { is(as('rev', '/upgraded', 'k1')->status, 200, 'it is another operation') });
    for my $bad ('revision=2 accepts=2', 'accepts=', 'revision=2 accepts=1,1', 'revision=9 accepts=1,2,3,4,5,6') {
        my ($status, $said) = $t->httpd->configtest($t->expand(protected('/x', "x $bad")));
        isnt($status, 0, "$bad is refused");
        like($said, qr/IdempotencyRoute: accepts=/, 'with the reason');
    }
};

$t->finish;
