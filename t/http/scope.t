# Whose key it is: tenant, principal, route and key name a record; nobody meets the record of another.
use strict;
use warnings;
use Idem::Test;

my $t = Idem::Test->new(modules => ['lua'], config => sub {
    my ($t) = @_;
    # What an authentication module does with a claim.
    spew($t->root . '/claim.lua', "function claim(r)\n    r.subprocess_env['CLAIM'] = r.headers_in['X-Claim']\n    return apache2.DECLINED\nend\n", 0644);
    my $env = "SetEnvIf X-From-Gateway (.+) GATEWAY=\$1\n";
    return join '', $env,
        protected('/charges', 'charges.create'), protected('/refunds', 'refunds.create'),
        protected({ who => "IdempotencyTenant const:shop1\n    IdempotencyPrincipal user" }, '/shop1', 'charges.create'),
        protected({ who => "IdempotencyTenant const:shop2\n    IdempotencyPrincipal user" }, '/shop2', 'charges.create'),
        protected('/items', 'auto'), protected('/orders', 'auto'), protected('/named', 'items.feedback'),
        protected('/revised', 'charges.create revision=2'),
        protected('/nohost', 'nohost', 'IdempotencyFingerprintHost Off'),
        protected({ who => "IdempotencyTenant env:GATEWAY\n    IdempotencyPrincipal user" }, '/untrusted', 'untrusted'),
        protected({ who => "IdempotencyTenant env:GATEWAY\n    IdempotencyPrincipal user\n    IdempotencyTrustEnv GATEWAY" }, '/trusted', 'trusted'),
        protected({ who => "IdempotencyTenant server\n    IdempotencyPrincipal env:CLAIM user\n    LuaHookAuthChecker $t->{root}/claim.lua claim" }, '/claim', 'claim'),
        <<'CONF';
ScriptAlias "/open" "@CGI@"
<Location "/open">
    IdempotencyRoute open
    IdempotencyTenant server
    IdempotencyPrincipal user
</Location>
<LocationMatch "^/shops/(?<SHOP>[^/]*)$">
    @AUTH@
    SetHandler cgi-script
    IdempotencyRoute "orders of %{MATCH_SHOP}"
    IdempotencyTenant server
    IdempotencyPrincipal user
</LocationMatch>
ScriptAliasMatch "^/shops/" "@CGI@"
CONF
});
my $c = $t->client;
my $b = $c->with(user => 'b');
my $body = '{"amount":10}';

# Both run, and neither gets anything of the other.
sub separate {
    my ($name, $one, $two) = @_;
    subtest $name => sub {
        my ($first, $second);
        ran($t, 2, $name, sub { ($first, $second) = ($one->(), $two->()) });
        is($_->status, 200, 'runs') for $first, $second;
        isnt($second->json->{id}, $first->json->{id}, 'two results');
        isnt($second->operation, $first->operation, 'two operations');
        ok(!$second->replayed, 'not a replay');
        is_replay($one->(), $first, 'the one again');
        is_replay($two->(), $second, 'the other again');
    };
}

sub key_of { my ($key, $place, $who) = @_; return sub { ($who // $c)->post($place, key => $key, body => $body) } }

separate('two principals', key_of('one', '/charges'), key_of('one', '/charges', $b));
separate('two tenants', key_of('two', '/shop1'), key_of('two', '/shop2'));
separate('charges and refunds', key_of('three', '/charges'), key_of('three', '/refunds'));
separate('two revisions of a route', key_of('four', '/charges'), key_of('four', '/revised'));
separate('C003 two concrete paths of one script', key_of('five', '/items/1/feedback'), key_of('five', '/items/2/feedback'));
separate('C004 create and cancel', key_of('six', '/orders'), key_of('six', '/orders/5/cancel'));
separate('two captures', key_of('seven', '/shops/a'), key_of('seven', '/shops/b'));

subtest 'C003 two concrete paths of a named route' => sub {
    my $first = $c->post('/named/1/feedback', key => 'k', body => $body);
    ran($t, 0, 'the second', sub { problem($c->post('/named/2/feedback', key => 'k', body => $body), 'key-reused', secrets => [ $first->json->{id} ]) });
};

subtest 'two Host names of one server' => sub {
    my $first = $c->post('/charges', key => 'host', body => $body);
    ran($t, 0, 'another Host', sub { problem($c->post('/charges', key => 'host', body => $body, host => 'evil.example'), 'key-reused') });
    is($t->record_count("idem_key = 'host'"), 1, 'the Host field is no tenant');
    is(($t->records("idem_key = 'host'"))[0]{tenant_id}, 'localhost', 'the configured name is');
    is_replay($c->post('/charges', key => 'host', body => $body, host => 'LOCALHOST:' . $t->httpd->port), $first, 'a host name in another case');
    my $off = $c->post('/nohost', key => 'host', body => $body);
    is_replay($c->post('/nohost', key => 'host', body => $body, host => 'www2.example'), $off, 'IdempotencyFingerprintHost Off');
};

subtest 'the same path, written otherwise' => sub {
    my $first = $c->post('/items/a%7Eb', key => 'path', body => $body);
    is_replay($c->post('/items/a~b', key => 'path', body => $body), $first, 'unreserved characters');
    my $other = $c->post('/items/a%2Cb', key => 'path', body => $body);
    is_replay($c->post('/items/a%2cb', key => 'path', body => $body), $other, 'hex in lower case');
    is_replay($c->post('/items/x/../a%2Cb', key => 'path', body => $body), $other, 'dot segments');
};

# A request that is refused for its identity runs nothing and leaves nothing.
sub nobody {
    my ($name, $send, $log) = @_;
    my $rows = $t->record_count;
    ran($t, 0, $name, sub { problem($send->(), 'identity-missing') });
    is($t->record_count, $rows, "$name: no record");
    like($t->httpd->log, $log, "$name: the log names the directive");
    $t->httpd->expect_log($log);
}

subtest 'C008 nobody is not somebody' => sub {
    nobody('no authentication', sub { $c->post('/open', key => 'k', body => $body, user => undef) }, qr/IdempotencyPrincipal.*user/);
    nobody('and another client', sub { $c->post('/open', key => 'k', body => '{"amount":11}', user => undef) }, qr/IdempotencyPrincipal.*user/);
    nobody('credentials that nobody asked for', sub { $c->post('/open', key => 'k', body => $body) }, qr/IdempotencyPrincipal.*user/);
    nobody('a value that stood there before authentication', sub { $c->post('/untrusted', key => 'k', body => $body, headers => [ 'X-From-Gateway' => 'shop9' ]) }, qr/IdempotencyTenant.*env:GATEWAY/);
    nobody('a trusted value that is not there', sub { $c->post('/trusted', key => 'k', body => $body) }, qr/IdempotencyTenant.*env:GATEWAY/);
    nobody('a claim that is not there', sub { $c->post('/claim', key => 'k', body => $body) }, qr/IdempotencyPrincipal.*env:CLAIM/);
    nobody('an empty claim', sub { $c->post('/claim', key => 'k', body => $body, headers => [ 'X-Claim' => '' ]) }, qr/IdempotencyPrincipal.*env:CLAIM/);
    nobody('a claim of 256 octets', sub { $c->post('/claim', key => 'k', body => $body, headers => [ 'X-Claim' => 'c' x 256 ]) }, qr/IdempotencyPrincipal source 'env:CLAIM': source 1 .*too long/);
    nobody('a claim with a tab', sub { $c->post('/claim', key => 'k', body => $body, headers => [ 'X-Claim' => "a\tb" ]) }, qr/IdempotencyPrincipal source 'env:CLAIM': source 1 .*control octet/);
    nobody('a claim that is not UTF-8', sub { $c->post('/claim', key => 'k', body => $body, headers => [ 'X-Claim' => "caf\xe9" ]) }, qr/IdempotencyPrincipal source 'env:CLAIM': source 1 .*UTF-8/);
};

subtest 'what a gateway or an authentication module says' => sub {
    my $first = $c->post('/trusted', key => 'k', body => $body, headers => [ 'X-From-Gateway' => 'shop9' ]);
    is($first->status, 200, 'IdempotencyTrustEnv');
    is(($t->records("route = 'trusted'"))[0]{tenant_id}, 'shop9', 'the tenant');
    my $claim = $c->post('/claim', key => 'k', body => $body, headers => [ 'X-Claim' => 'iss1' ]);
    is($claim->status, 200, 'a claim');
    is(($t->records("route = 'claim'"))[0]{principal_id}, "iss1\x{1e}a", 'several sources are joined');
    ran($t, 1, 'another claim', sub { is($c->post('/claim', key => 'k', body => $body, headers => [ 'X-Claim' => 'iss2' ])->status, 200, 'runs') });
    ran($t, 1, 'a claim of 255 octets', sub { is($c->post('/claim', key => 'k', body => $body, headers => [ 'X-Claim' => 'c' x 255 ])->status, 200, 'runs') });
};

subtest 'authentication comes first' => sub {
    my $first = $c->post('/charges', key => 'auth', body => $body);
    my $rows = $t->record_count;
    ran($t, 0, 'refused by authentication', sub {
        for my $res ($c->post('/charges', key => 'auth', body => $body, user => undef), $c->post('/charges', key => 'auth', body => $body, headers => [ Authorization => 'Basic eDp5' ], user => undef),
            $c->post('/charges', key => '', headers => [ 'Idempotency-Key' => '' ], body => $body, user => undef)) {
            is($res->status, 401, 'refused');
            is(scalar(grep { $_->[0] =~ /^Idempotency/i } @{ $res->{fields} }), 0, 'the module has no part in it');
            unlike($res->body, qr/\Q@{[ $first->json->{id} ]}\E/, 'nothing of the first');
        }
    });
    is($t->record_count, $rows, 'no record');
    $t->httpd->allow_log(qr/AH01618: user x not found/);
};

subtest 'a route that a request does not name' => sub {
    my $rows = $t->record_count;
    ran($t, 0, 'an empty capture', sub { problem($c->post('/shops/', key => 'k', body => $body), 'route-unresolved') });
    ran($t, 0, 'a long capture', sub { problem($c->post('/shops/' . 'x' x 256, key => 'k', body => $body), 'route-unresolved') });
    ran($t, 0, 'a control octet', sub { problem($c->post('/shops/a%01b', key => 'k', body => $body), 'route-unresolved') });
    is($t->record_count, $rows, 'no record');
};

subtest 'a long path of an automatic route' => sub {
    my $path = '/items/' . 'p' x 240;
    my $first = $c->post($path, key => 'long', body => $body);
    is_replay($c->post($path, key => 'long', body => $body), $first, 'a retry');
    my $whole = "POST $path";
    is(($t->records("idem_key = 'long'"))[0]{route}, substr($whole, 0, 120) . '~' . sha256($whole), 'its first 120 octets, ~ and the SHA-256');
    ran($t, 1, 'another end', sub { is($c->post("${path}x", key => 'long', body => $body)->status, 200, 'is another route') });
};

$t->finish;
