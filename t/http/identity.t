# What a client can write is no identity, by whatever way it gets into the server; and what becomes of a request without one.
use strict;
use warnings;
use Idem::Test;

# A claim as an authentication module sets it: from X-Claim, which stands for a token here.
my $claim = <<'LUA';
function claim(r)
    for _, name in ipairs({ 'Claim', 'Claim2' }) do
        local value = r.headers_in['X-' .. name]
        if value then r.subprocess_env[name:upper()] = r:unescape(value) end
    end
    return apache2.DECLINED
end
LUA
# Where the tenant is a claim and no token has brought one.
my $who = "IdempotencyTenant env:OIDC_CLAIM_tenant\n    IdempotencyPrincipal user";

my $t = Idem::Test->new(
    modules => ['lua'],
    mpm_config => "ServerLimit 1\nStartServers 1\nThreadsPerChild 25\nMaxRequestWorkers 25\nMinSpareThreads 1\nMaxSpareThreads 25\n",
    config => sub {
        my ($t) = @_;
        spew($t->root . '/claim.lua', $claim, 0644);
        mkdir $t->root . '/htdocs/fall';
        return join '', <<'CONF',
RewriteEngine On
RewriteRule "^/server" "-" [E=OIDC_CLAIM_tenant:%{HTTP:X-T}]
RewriteRule "^/lower" "-" [E=oidc_claim_TENANT:%{HTTP:X-T}]
RewriteRule "^/begin" "/server/passed" [PT,E=OIDC_CLAIM_tenant:%{HTTP:X-T}]
SetEnvIf X-T (.+) SEEN=$1
SetEnvIfNoCase Request_URI "^/setenvif" GO=1
<Location "/setenvif">
    SetEnvIf X-T (.+) OIDC_CLAIM_tenant=$1
</Location>
<Location "/expression">
    SetEnvIfExpr "req('X-T') =~ /(.+)/" OIDC_CLAIM_tenant=$1
</Location>
<Location "/directory">
    RewriteEngine On
    RewriteRule "" "-" [E=OIDC_CLAIM_tenant:%{HTTP:X-T}]
</Location>
<Location "/fixed">
    SetEnv OIDC_CLAIM_tenant shop1
    RequestHeader set OIDC_CLAIM_tenant shop1
</Location>
Alias "/jump" "@ROOT@/htdocs"
<Directory "@ROOT@/htdocs">
    RewriteEngine On
    RewriteRule "^there$" "/server/jumped" [E=OIDC_CLAIM_tenant:%{HTTP:X-T},PT]
</Directory>
Alias "/fall" "@ROOT@/htdocs/fall"
<Directory "@ROOT@/htdocs/fall">
    FallbackResource /open/fallen
</Directory>
<Location "/fall">
    @AUTH@
    SetEnvIf X-T (.+) OIDC_CLAIM_tenant=$1
    IdempotencyRoute fall
    IdempotencyTenant env:OIDC_CLAIM_tenant
    IdempotencyPrincipal user
</Location>
ScriptAlias "/open" "@CGI@"
CONF
            (map { protected({ who => $who }, "/$_", $_) } qw(server lower setenvif expression directory fixed)),
            protected('/charges', 'charges.create'),
            protected({ who => "IdempotencyTenant server\n    IdempotencyPrincipal env:CLAIM user\n    LuaHookAuthChecker $t->{root}/claim.lua claim" }, '/claim', 'claim'),
            protected({ who => "IdempotencyTenant env:CLAIM env:SEEN\n    IdempotencyPrincipal user\n    IdempotencyTrustEnv SEEN\n    LuaHookAuthChecker $t->{root}/claim.lua claim" }, '/both', 'both'),
            protected({ who => "IdempotencyTenant env:CLAIM\n    IdempotencyPrincipal env:CLAIM2 user\n    LuaHookAuthChecker $t->{root}/claim.lua claim" }, '/parts', 'parts'),
            protected({ who => "IdempotencyTenant server\n    IdempotencyPrincipal env:CLAIM user\n    LuaHookAuthChecker $t->{root}/claim.lua claim\n    SetEnvIf X-Claim-Early (.+) CLAIM=\$1" }, '/overwritten', 'overwritten'),
            protected('/short', 'short', 'IdempotencyRetention 0s', 'IdempotencyTombstone 1h'),
            <<'CONF';
ScriptAlias "/bypass" "@CGI@"
<Location "/bypass">
    IdempotencyRoute bypass
    IdempotencyTenant server
    IdempotencyPrincipal user
    IdempotencyNoIdentity Bypass
</Location>
CONF
    });
my $c = $t->client;
my $b = $c->with(user => 'b');
my $body = '{"amount":10}';

sub nobody {
    my ($name, $place, $log, @headers) = @_;
    my $rows = $t->record_count;
    ran($t, 0, $name, sub { problem($c->post($place, key => fresh_key(), body => $body, headers => \@headers), 'identity-missing', secrets => [ 'shop1', 'OIDC_CLAIM' ]) });
    is($t->record_count, $rows, "$name: nothing is stored");
    $t->httpd->expect_log($log);
    like($t->httpd->log, $log, "$name: directive and source are named");
}

my $tenant = qr/IDEM0102: identity missing: IdempotencyTenant source 'env:OIDC_CLAIM_tenant'/;
nobody('RewriteRule [E=] of the server', '/server', $tenant, 'X-T' => 'shop1');
nobody('the same in another case', '/lower', $tenant, 'X-T' => 'shop1');
nobody('RewriteRule [E=] with [PT]', '/begin', $tenant, 'X-T' => 'shop1');
nobody('RewriteRule [E=] of a Location', '/directory', $tenant, 'X-T' => 'shop1');
nobody('RewriteRule [E=] of a Directory, then a redirect', '/jump/there', $tenant, 'X-T' => 'shop1');
nobody('FallbackResource behind SetEnvIf', '/fall/there', $tenant, 'X-T' => 'shop1');
nobody('SetEnvIf', '/setenvif', $tenant, 'X-T' => 'shop1');
nobody('SetEnvIfExpr', '/expression', $tenant, 'X-T' => 'shop1');
nobody('SetEnv and RequestHeader of a Location', '/fixed', $tenant);
nobody('fields that look like claims', '/server', $tenant, 'OIDC_CLAIM_tenant' => 'shop1', 'OIDC-CLAIM-tenant' => 'shop1', 'X-OIDC-Claim-Tenant' => 'shop1');
ok(index($t->httpd->log, 'shop1') < 0, 'no value is in the error log');

subtest 'a claim that authentication sets goes before what the client set' => sub {
    my $rows = sub { map { $_->{principal_id} } $t->records("route = 'overwritten'") };
    is($c->post('/overwritten', key => 'k', body => $body, headers => [ 'X-Claim' => 'true', 'X-Claim-Early' => 'false' ])->status, 200, 'runs');
    is_deeply([ $rows->() ], ["true\x{1e}a"], 'the claim');
    nobody('only the client', '/overwritten', qr/IdempotencyPrincipal source 'env:CLAIM' was set before authentication began/, 'X-Claim-Early' => 'false');
};

subtest 'what clients send beside it changes nothing' => sub {
    my $first = $c->post('/charges', key => 'same', body => $body);
    my @lies = ('X-Forwarded-For' => '10.9.8.7', 'X-Forwarded-Host' => 'evil.example', 'X-Forwarded-User' => 'b', 'X-Forwarded-Proto' => 'https', Forwarded => 'for=10.9.8.7;host=evil.example',
        'X-Remote-User' => 'b', 'Remote-User' => 'b', 'REMOTE_USER' => 'b', 'OIDC_CLAIM_sub' => 'b', 'OIDC_CLAIM_iss' => 'https://evil.example', 'OIDC_CLAIM_tenant' => 'evil',
        'Idempotency-Operation-Id' => '00000000-0000-7000-8000-000000000000', 'Idempotency_Operation' => 'x', 'Idempotency-Generation' => '9', 'Idempotency-Downstream-Key' => 'x', 'Idempotency-Outcome' => 'rejected');
    is_replay($c->post('/charges', key => 'same', body => $body, headers => \@lies), $first, 'a retry with lies');
    is_replay($c->post('/charges', key => 'same', body => $body, headers => [ 'User-Agent' => 'other/1.0', 'X-Request-Id' => 'r2', Cookie => 'session=new', Traceparent => '00-1-2-03' ]), $first, 'a retry by another program, with another session');
    my $fresh = $c->post('/charges', key => 'lies', body => $body, headers => \@lies);
    my ($record) = $t->records("idem_key = 'lies'");
    is_deeply([ @$record{qw(scope_version tenant_id principal_id route api_revision ns)} ], [ 'v1', 'localhost', 'a', 'charges.create', '1', 'u:' ], 'the record names nothing of them');
    is($record->{operation_id}, $fresh->operation, 'the operation is the module\'s');
    is($fresh->json->{env}{HTTP_IDEMPOTENCY_OPERATION_ID}, $fresh->operation, 'the backend gets its id and not the client\'s');
    is($fresh->json->{env}{HTTP_IDEMPOTENCY_GENERATION}, 1, 'and its generation');
};

subtest 'no list of values is another list' => sub {
    my @pairs = ([ 'A%1eB', 'X' ], [ 'A', 'B%1eX' ]);
    for my $pair (@pairs) {
        nobody('a value with the separator', '/parts', qr/IDEM0103.*control/, 'X-Claim' => $pair->[0], 'X-Claim2' => $pair->[1]);
    }
    is($c->post('/parts', key => 'k', body => $body, headers => [ 'X-Claim' => 'c' x 255, 'X-Claim2' => 'd' x 255 ])->status, 200, '255 octets each');
    nobody('invalid UTF-8', '/parts', qr/IDEM0103.*UTF-8/, 'X-Claim' => 'caf%e9', 'X-Claim2' => 'd');
    nobody('an empty value', '/parts', qr/IDEM0102: .*IdempotencyPrincipal source 'env:CLAIM2' is missing or empty/, 'X-Claim' => 'c', 'X-Claim2' => '');
    nobody('256 octets', '/parts', qr/IDEM0103.*IdempotencyTenant.*too long/, 'X-Claim' => 'c' x 256, 'X-Claim2' => 'd');
    nobody('256 octets', '/parts', qr/IDEM0103.*IdempotencyPrincipal.*too long/, 'X-Claim' => 'c', 'X-Claim2' => 'd' x 256);
};

subtest 'A is not disturbed by a key that B has' => sub {
    $b->post('/charges', key => 'settled', body => '{"amount":77}');
    ran($t, 1, 'B has it settled, with another request', sub { is($c->post('/charges', key => 'settled', body => $body)->status, 200, 'runs') });
    my $before = () = $t->backend->effects;
    my $running = $b->send(POST => '/charges?hold=1', key => 'running', body => $body);
    wait_for(sub { (() = $t->backend->effects) > $before }) or die "B does not run\n";
    ran($t, 1, 'B has it running', sub { is($c->post('/charges', key => 'running', body => $body)->status, 200, 'runs') });
    $t->backend->release;
    is($running->response->status, 200, 'and so does B');
    my $first = $b->post('/short', key => 'expired', body => $body);
    wait_for(sub { $b->post('/short', key => 'expired', body => $body)->status == 410 });
    ran($t, 1, 'B has it expired', sub { is($c->post('/short', key => 'expired', body => $body)->status, 200, 'runs') });
};

subtest 'a refusal tells nobody\'s identity' => sub {
    my $me = 'the-principal-of-this-test';
    my @said = ($me, 'charges.create', 'localhost', 'IdempotencyTenant', 'secret-key-1', 'X-Claim');
    my @send = ('/claim', key => 'secret-key-1', headers => [ 'X-Claim' => $me ]);
    $t->backend->behave(hold => 1);
    my $running = $c->send(POST => '/claim?hold=1', @send[ 1 .. $#send ], body => $body);
    wait_for(sub { $t->record_count("idem_key = 'secret-key-1'") }) or die "it does not run\n";
    problem($c->post('/claim?hold=1', @send[ 1 .. $#send ], body => $body), 'in-progress', secrets => \@said);
    $t->backend->release;
    $running->response;
    $t->backend->behave;
    problem($c->post('/claim?hold=1', @send[ 1 .. $#send ], body => '{"amount":11}'), 'key-reused', secrets => [ @said, '"amount":10' ]);
    problem($b->post('/short', key => 'expired', body => $body), 'key-expired', secrets => [ 'localhost', 'short' ]);
    my $log = $t->httpd->log;
    my @lines = grep { /IDEM0601: (?:in-progress|key-reused)/ } split /\n/, $log;
    my ($one, @more) = map { /, scope ([0-9a-f]{16})$/ ? $1 : 'none' } @lines;
    like($one, qr/\A[0-9a-f]{16}\z/, 'the log names the scope by a digest');
    is($more[-1], $one, 'which is the same for the same scope') if @more;
    like($lines[0], qr/^\[[^\]]+\] \[idempotency:info\]/, 'at level info');
    my @ours = grep { /IDEM\d{4}/ } split /\n/, $log;
    is(scalar(grep { index($_, $me) >= 0 || index($_, 'secret-key-1') >= 0 } @ours), 0, 'neither identity nor key is in a line of the module');
};

subtest 'C008 IdempotencyNoIdentity Bypass' => sub {
    my $rows = $t->record_count;
    my @response;
    ran($t, 3, 'no deduplication', sub {
        push @response, $c->post('/bypass', key => 'k', body => $body, user => undef);
        push @response, $c->post('/bypass', key => 'k', body => $body, user => undef);
        push @response, $c->post('/bypass', key => 'k', body => '{"amount":11}', user => undef);
    });
    is($t->record_count, $rows, 'nothing is stored');
    for my $one (@response) {
        is($one->status, 200, 'the backend answers');
        is(scalar(grep { $_->[0] =~ /^Idempotency/i } @{ $one->{fields} }), 0, 'the module has no part in it');
        is($one->json->{key}, '"k"', 'the key goes on to the backend');
    }
    my @warned = $t->httpd->log =~ /(\[idempotency:warn\] .*IDEM0104: .*)/g;
    is(scalar @warned, 1, 'one warning in this child');
    $t->httpd->expect_log(qr/IDEM0104: requests without identity pass without protection/);
    is(scalar(() = $t->httpd->log =~ /\[idempotency:info\].*IDEM0102: .*IdempotencyPrincipal source 'user'/g), 3, 'a line of level info for each');
    like(slurp($t->root . '/logs/access.log'), qr/outcome=bypassed/, 'the access log says so');
    problem($c->post('/bypass', key => '', headers => [ 'Idempotency-Key' => 'x' ], body => $body, user => undef), 'key-malformed');
};

$t->finish;
