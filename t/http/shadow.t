# IdempotencyMode Shadow: nobody sees a difference, whatever the registry does; and it counts what Enforce would have said.
use strict;
use warnings;
use Idem::Test;
use JSON::PP;

# What a request is logged by waits for a file, where the request says so; not for ever.
my $log = <<'LUA';
function log(r)
    local till = os.time() + 20
    while r.headers_in['X-Log-Waits'] and os.time() < till do
        local go = io.open('GO')
        if go then go:close() break end
        os.execute('sleep 0.02')
    end
    return apache2.DECLINED
end
LUA
my $revision;
sub config {
    my ($mode) = @_;
    my @mode = ("IdempotencyMode $mode", 'IdempotencyFingerprint json', 'IdempotencyMaxBody 2K');
    return protected('/charges', 'charges.create', @mode)
        . protected({ by => 'proxy' }, '/proxy', 'proxy.create', @mode)
        . protected('/upgraded', 'upgraded revision=' . ($revision // 1), @mode)
        . protected({ who => "IdempotencyTenant env:NOBODY\nIdempotencyPrincipal user" }, '/nobody', 'nobody.create', "IdempotencyMode $mode");
}
my $t = Idem::Test->new(backends => [ 'cgi', 'proxy' ], modules => ['lua'], config => sub { my $root = $_[0]->root; spew("$root/log.lua", $log =~ s/GO/$root\/go/r, 0644); "LuaHookLog $root/log.lua log\n" . config('Shadow') }, mpm_config => <<'MPM');
ServerLimit 1
StartServers 1
ThreadsPerChild 25
MaxRequestWorkers 25
MinSpareThreads 1
MaxSpareThreads 25
MPM
my $bare = Idem::Test->new(store => 0, module => 0, backends => [], modules => ['proxy', 'proxy_http'], config => '', start => 0);
$bare->httpd->{config} = join '', grep { !/Idempotency/ } split /^/m, $t->expand(config('Shadow'));
$bare->httpd->start;
my $c = $t->client;
my $c0 = $bare->client->with(authority => 'localhost:' . $t->httpd->port);
sub report { my ($status, $said) = $t->ctl('shadow-report', '--json', @_); die $said if $status; return { map { $_->{route} => $_ } @{ decode_json($said) } } }
sub reports { my ($name, $route, %want) = @_; my $last; wait_for(sub { $last = report()->{$route} || {}; !grep { ($last->{$_} // -1) ne $want{$_} } keys %want }, 15); is_deeply({ map { $_ => $last->{$_} } keys %want }, \%want, $name); return $last }

# What a client sees, all but the time, and the framing: mod_cgid's depends on how fast a script ends.
sub seen { my ($res) = @_; return join "\n", $res->status, (map { "$_->[0]: $_->[1]" } grep { $_->[0] !~ /^(?:Date|Content-Length|Transfer-Encoding)$/ } @{ $res->{fields} }), $res->body }
my @cases = (
    [ 'first', '/charges', key => 'shadow-1', body => '{"amount":10}' ], [ 'a retry', '/charges', key => 'shadow-1', body => '{ "amount":10 }' ],
    [ 'another', '/charges', key => 'shadow-1', body => '{"amount":11}' ], [ 'no key', '/charges', body => '{}' ],
    [ 'no such key', '/charges', headers => [ 'Idempotency-Key' => 'a, b' ], body => '{}' ], [ 'not JSON', '/charges', key => 'shadow-2', body => '{"a":1,"a":2}' ],
    [ 'too large', '/charges', key => 'shadow-3', body => '{"a":"' . 'x' x 3000 . '"}' ], [ 'chunks', '/proxy', key => 'shadow-4', chunks => [ '{"a"', ':1}' ] ],
    [ 'a retry in one', '/proxy', key => 'shadow-4', body => '{"a":1}' ],
    [ 'nobody', '/nobody', key => 'shadow-6', body => '{}' ], [ 'with outcome', '/charges?outcome=failed&status=402', key => 'shadow-7', body => '{}' ],
    [ 'an error', '/charges?status=500', key => 'shadow-8', body => '{}' ], [ 'its retry', '/charges?status=500', key => 'shadow-8', body => '{}' ],
    [ 'rejected', '/charges?status=429', key => 'shadow-9', body => '{}' ], [ 'its retry', '/charges?status=429', key => 'shadow-9', body => '{}' ],
    [ 'empty', '/charges', key => 'shadow-10' ],
);
$t->backend->behave(body => '{"same":"answer"}');

# The same requests to the server without the module and to ours; how often the application ran for each.
sub all_equal {
    my ($name) = @_;
    my (@want, @got);
    ran($t, scalar @cases, "$name: without the module", sub { @want = map { my ($n, $path, %arg) = @$_; seen($c0->post($path, %arg)) } @cases });
    ran($t, scalar @cases, "$name: in shadow", sub { @got = map { my ($n, $path, %arg) = @$_; seen($c->post($path, %arg)) } @cases });
    is($got[$_], $want[$_], "$name: $cases[$_][0]: nothing is different") for 0 .. $#cases;
}

subtest 'with the registry' => sub { all_equal('registry') };

subtest 'what it has seen' => sub {
    my $told = reports('charges', 'charges.create', requests => 13, would_replay => 1, would_422 => 1, key_missing => 1, key_malformed => 1,
        payload_too_large => 1, would_409_outcome_unknown => 1, would_execute => 6);
    is($told->{payload_rejected}, 1, 'a duplicate member');
    is($told->{keyed}, 12, 'how many had a key');
    is($told->{would_422_differing}, 'payload: 1', 'where it differed');
    reports('a body is the same, however it was cut', 'proxy.create', requests => 2, would_replay => 1, would_execute => 1);
    reports('identity', 'nobody.create', requests => 1, identity_missing => 1);
    is($t->record_count("scope_version <> 'shadow-v1'"), 0, 'no record that counts');
    is($t->record_count("status = 'UNKNOWN'"), 0, 'nothing to be asked about');
    my ($status, $said) = $t->ctl('list', '--json');
    is_deeply(decode_json($said), [], 'list does not show them');
    ($status, $said) = $t->ctl('shadow-report');
    like($said, qr/^charges\.create\n\s+13 requests, 12 with a key \(92\.3 %\)\n/m, 'for people');
    like($said, qr/1 would be 422 key-reused/, 'in sentences');
    is_deeply(report('--since', '2099-01-01'), {}, 'since a time');
    is(($t->ctl('shadow-report', '--since', 'when'))[0], 2, 'a time that is none');
    like($t->httpd->log, qr/shadow: key-reused: payload, scope [0-9a-f]{16}/, 'the log says it too');
    unlike($t->httpd->log, qr/shadow-1\b/, 'and no key');
};

subtest 'two at once, on two servers' => sub {
    my $twin = $t->twin;
    my $c = $t->both;
    $t->backend->behave(hold => 1);
    my @running = map { $c->send(POST => '/charges', key => 'shadow-both', body => '{}') } 1 .. 2;
    ok(wait_for(sub { 2 == grep { ($_->{key} // '') =~ /shadow-both/ } $t->backend->effects }, 10), 'both run');
    $t->backend->release;
    is($_->response->status, 200, 'is answered') for @running;
    $t->backend->behave(body => '{"same":"answer"}');
    reports('would have been in progress', 'charges.create', would_409_in_progress => 1);
};

subtest 'a retry that comes before its first request is logged' => sub {
    my $before = report()->{'proxy.create'};
    my $first = $c->post('/proxy', key => 'unlogged', body => '{}', headers => [ 'X-Log-Waits' => 1 ]);
    is($first->status, 200, 'the first is answered');
    $t->backend->behave(hold => 1);
    my $retry = $c->send(POST => '/proxy', key => 'unlogged', body => '{}');
    ok(wait_for(sub { 2 == grep { ($_->{key} // '') =~ /unlogged/ } $t->backend->effects }, 10), 'its retry has begun');
    spew($t->root . '/go', '', 0644);
    ok(wait_for(sub { $t->record_count("idem_key = 'unlogged' AND settled_at IS NOT NULL") == 1 }, 10), 'then the first is logged');
    $t->backend->release;
    is($retry->response->status, 200, 'the retry is answered');
    $t->backend->behave(body => '{"same":"answer"}');
    reports('it came after the answer: a replay', 'proxy.create', would_execute => $before->{would_execute} + 1, would_replay => $before->{would_replay} + 1,
        would_409_in_progress => $before->{would_409_in_progress});
};

subtest 'who has become somebody else' => sub {
    my $cb = $c->with(user => 'b');
    my $before = report()->{'proxy.create'};
    my $more = sub { my ($name, %more) = @_; return reports($name, 'proxy.create', map { $_ => $before->{$_} + $more{$_} } keys %more) };
    $c->post('/proxy', key => 'alias-1', body => '{"a":1}');
    $more->('a first request', would_execute => 1);
    my ($status, $said) = $t->ctl('alias', 'add', '--from-tenant', 'localhost', '--from-principal', 'a', '--to-tenant', 'localhost', '--to-principal', 'b', '--until', '2099-01-01', '--reason', 'a test');
    is($status, 0, 'an alias') or diag($said);
    $cb->post('/proxy', key => 'alias-1', body => '{"a":1}');
    $more->('its retry by the new identity', would_execute => 1, would_replay => 1, not_known => 0);
    $cb->post('/proxy', key => 'alias-1', body => '{"a":2}');
    $more->('another request by it', would_execute => 1, would_422 => 1);
    $c->post('/proxy', key => 'alias-2', body => '{"a":1}');
    $cb->post('/proxy', key => 'alias-2', body => '{"a":1}');
    $more->('by the old one first', would_execute => 2, would_replay => 2);
    is(($t->records("idem_key = 'alias-2'"))[0]{principal_id}, 'b', 'kept under the newest');
};

subtest 'a revision that is accepted besides' => sub {
    $c->post('/upgraded', key => 'upgrade-1', body => '{"a":1}');
    reports('under revision 1', 'upgraded', requests => 1, would_execute => 1);
    $revision = '2 accepts=1';
    $t->httpd->graceful(config => $t->expand(config('Shadow')));
    $c->post('/upgraded', key => 'upgrade-1', body => '{"a":1}');
    $c->post('/upgraded', key => 'upgrade-2', body => '{"a":1}');
    $c->post('/upgraded', key => 'upgrade-1', body => '{"a":2}');
    reports('under revision 2', 'upgraded', requests => 4, would_execute => 2, would_replay => 1, would_422 => 1);
    is(join(' ', map { "$_->{idem_key} $_->{api_revision}" } sort { $a->{idem_key} cmp $b->{idem_key} } $t->records("route = 'upgraded'")), 'upgrade-1 1 upgrade-2 2', 'each where it was first');
};

subtest 'with the registry stopped' => sub {
    my $before = report()->{'charges.create'}{requests};
    $t->pg->stop('immediate');
    all_equal('stopped');
    $t->pg->start;
    ok(wait_for(sub { (report()->{'charges.create'}{requests} // 0) >= $before + 13 }, 30), 'what was seen meanwhile is counted when it is back');
};

subtest 'with the registry frozen' => sub {
    $t->pg->sigstop;
    all_equal('frozen');
    $t->pg->cont;
};
$t->httpd->allow_log(qr/dbd:|IDEM0102|IDEM1003|IDEM10\d\d|registry/);
$t->allow_pg_log(qr/invalid input syntax for type timestamp/, qr/database system is starting up/, qr/database system was not properly shut down|terminating connection|connection/);
$bare->finish(more => 1);
$t->finish;
