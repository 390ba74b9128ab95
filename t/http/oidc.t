# Who the caller is by mod_auth_openidc and real OpenID Providers, with the configurations of conf/examples.
use strict;
use warnings;
use Idem::Browser;
use Idem::Oidc;
use Idem::Test;

my ($op, $port);

my %claims = (
    alice => { groups => [ 'a', 'b' ], email => 'both@example.com' }, bob => { groups => ['a,b'], email => 'both@example.com' }, short => {},
    nowhere => { tenant => undef }, void => { tenant => '' }, tab => { tenant => "a\tb" },
    sepT => { tenant => "A\x{1e}B", role => 'X' }, sepR => { tenant => 'A', role => "B\x{1e}X" },
    long => { tenant => 't' x 255 }, longer => { tenant => 't' x 256 },
);

# What an account's tokens say.
sub claims { my ($name, %more) = @_; return { tenant => 'shop1', role => 'pay', email => "$name\@example.com", %{ $claims{$name} }, %more } }

# An example as it stands, with this machine's addresses and files.
sub example {
    my ($t, $name, %more) = @_;
    my ($one, $two) = $op->keys;
    my $text = slurp("conf/examples/$name.conf");
    $text =~ s{<VirtualHost \*:80>}{<VirtualHost *:$port>};
    $text =~ s{https://login-one\.example\.com}{$op->issuer(1)}ge;
    $text =~ s{https://login-two\.example\.com}{$op->issuer(2)}ge;
    $text =~ s{https://(\w+)\.example\.com/}{http://$1.example.com:$port/}g;
    $text =~ s{one#\S+}{$one}g;
    $text =~ s{two#\S+}{$two}g;
    $text =~ s{urn:example:api}{urn:tests:api}g;
    $text =~ s{IncludeOptional\s+\S+secret}{OIDCClientSecret secret}g;
    $text =~ s{exec:/bin/cat \S+passphrase}{exec:/bin/echo passphrase}g;
    $text =~ s{/usr/lib/cgi-bin/\w+}{\@CGI\@}g;
    $text =~ s{(?=</VirtualHost>)}{$more{lines}} if $more{lines};
    return $text;
}

my $t = Idem::Test->new(
    modules => ['auth_openidc'],
    config => sub {
        my ($t) = @_;
        $port = $t->httpd->port;
        $op = Idem::Oidc->new(redirect_uri => "http://shop.example.com:$port/oidc", accounts => { map { $_ => claims($_) } sort keys %claims });
        my $place = sub { my ($path, $auth, @who) = @_; return "ScriptAlias $path \@CGI\@\n<Location \"$path\">\n$auth\nIdempotencyRoute $path\n" . join("\n", @who) . "\n</Location>\n" };
        my $bearer = 'AuthType oauth20' . "\nRequire valid-user";
        my @who = ('IdempotencyTenant env:OIDC_CLAIM_tenant', 'IdempotencyPrincipal env:OIDC_CLAIM_iss env:OIDC_CLAIM_sub');
        return "OIDCCryptoPassphrase passphrase\nOIDCOAuthVerifyCertFiles " . join(' ', $op->keys) . "\n"
            . example($t, 'oidc-bearer', lines => "ScriptAlias /v1/refunds \@CGI\@\n<Location /v1/refunds>\nAuthType oauth20\nRequire valid-user\nIdempotencyRoute refunds.create\n@{[join qq{\n}, @who]}\n</Location>\n")
            . example($t, 'oidc-session', lines => "ScriptAlias /pass \@CGI\@\n<Location /pass>\nAuthType openid-connect\nOIDCUnAuthAction pass\nRequire valid-user\nIdempotencyRoute orders.create\n@{[join qq{\n}, @who]}\n</Location>\n")
            . example($t, 'oidc-both')
            . "<VirtualHost *:$port>\nServerName more.example.com\nOIDCOAuthAcceptTokenAs header cookie:token post\nOIDCOAuthRemoteUserClaim email\n"
            . $place->('/user', $bearer, 'IdempotencyTenant server', 'IdempotencyPrincipal user')
            . $place->('/subject', $bearer, 'IdempotencyTenant server', 'IdempotencyPrincipal env:OIDC_CLAIM_iss env:OIDC_CLAIM_sub')
            . $place->('/groups', $bearer, 'IdempotencyTenant server', 'IdempotencyPrincipal env:OIDC_CLAIM_groups')
            . $place->('/parts', $bearer, 'IdempotencyTenant env:OIDC_CLAIM_tenant', 'IdempotencyPrincipal env:OIDC_CLAIM_role')
            . "</VirtualHost>\n";
    });
$t->httpd->allow_log(qr/\[auth_openidc:/, qr/AH01630: client denied/, qr/AH01631: user bob: authorization failure/);
my $body = '{"amount":10}';
# what clients send to make themselves somebody else
my @lies = ('OIDC_CLAIM_sub' => 'alice', 'OIDC_CLAIM_tenant' => 'shop9', 'OIDC-CLAIM-iss' => 'https://evil.example', 'OIDC_CLAIM_role' => 'pay', 'X-Forwarded-User' => 'bob');

# A request by an account's new access token.
sub api {
    my ($who, $target, %arg) = @_;
    my ($account, $issuer) = ref $who ? @$who : $who;
    my $host = delete $arg{at} // 'api';
    return $t->client->post($target, user => undef, body => $body, %arg, host => "$host.example.com:$port", headers => [ $op->bearer($account, $issuer), @{ $arg{headers} || [] } ]);
}

sub nobody {
    my ($name, $log, @request) = @_;
    my $rows = $t->record_count;
    ran($t, 0, $name, sub { problem(api(@request), 'identity-missing') });
    is($t->record_count, $rows, "$name: nothing is stored");
    $t->httpd->expect_log($log);
    like($t->httpd->log, $log, "$name: the log says what is missing");
}

subtest 'bearer tokens' => sub {
    my $first;
    ran($t, 1, 'C005 a new token of the same subject', sub {
        $first = api('alice', '/v1/charges', key => 'k1');
        is($first->status, 200, 'runs') or diag($t->httpd->log);
        is_replay(api('alice', '/v1/charges', key => 'k1'), $first, 'a retry');
        is_replay(api('alice', '/v1/charges', key => 'k1', headers => \@lies), $first, 'a retry with claims of the client');
    });
    my ($record) = $t->records("idem_key = 'k1'");
    is($record->{tenant_id}, 'shop1', 'the tenant is a claim');
    is($record->{principal_id}, $op->issuer(1) . "\x{1e}alice", 'the principal is issuer and subject');
    ran($t, 1, 'the same subject of another issuer', sub { my $other = api([ 'alice', 2 ], '/v1/charges', key => 'k1'); is($other->status, 200, 'runs'); isnt($other->json->{id}, $first->json->{id}, 'a result of its own') });
    ran($t, 1, 'the same key for refunds', sub { is(api('alice', '/v1/refunds', key => 'k1')->status, 200, 'runs') });
    ran($t, 1, 'another subject', sub { is(api('bob', '/v1/charges', key => 'k1')->status, 200, 'runs') });
    $op->accounts(alice => claims('alice', tenant => 'shop2'));
    ran($t, 1, 'another tenant', sub { my $other = api('alice', '/v1/charges', key => 'k1'); is($other->status, 200, 'runs'); isnt($other->json->{id}, $first->json->{id}, 'a result of its own') });
    $op->accounts(alice => claims('alice'));
};

subtest 'authentication and authorization come first' => sub {
    my $first = api('short', '/v1/charges', key => 'k2');
    is($first->status, 200, 'runs');
    my @bearer = $op->bearer('short');
    my $stale = sub { $t->client->post('/v1/charges', user => undef, key => 'k2', body => $body, host => "api.example.com:$port", headers => \@bearer) };
    ran($t, 0, 'the token expires', sub {
        ok(wait_for(sub { $stale->()->status == 401 }), 'status 401');
        my $refused = $stale->();
        is(index($refused->body, $first->json->{id}), -1, 'nothing of the answer');
        is(scalar(grep { $_->[0] =~ /^Idempotency/i } @{ $refused->{fields} }), 0, 'the module has no part in it');
        is_replay(api('short', '/v1/charges', key => 'k2'), $first, 'a new token');
    });
    my $paid = api('bob', '/v1/charges', key => 'k3');
    $op->accounts(bob => claims('bob', role => 'look'));
    ran($t, 0, 'C015 the right is taken away', sub {
        my $refused = api('bob', '/v1/charges', key => 'k3');
        ok($refused->status == 403 || $refused->status == 401, 'refused: ' . $refused->status);
        is(index($refused->body, $paid->json->{id}), -1, 'no stored octet');
        is(scalar(grep { $_->[0] =~ /^Idempotency/i } @{ $refused->{fields} }), 0, 'the module has no part in it');
    });
    $op->accounts(bob => claims('bob'));
    is_replay(api('bob', '/v1/charges', key => 'k3'), $paid, 'and given back');
};

subtest 'claims that are no identity' => sub {
    nobody('C012 no such claim', qr/IDEM0102: identity missing: IdempotencyTenant source 'env:OIDC_CLAIM_tenant' is missing or empty/, 'nowhere', '/v1/charges', key => 'k4');
    nobody('and the client says it', qr/IDEM0102.*OIDC_CLAIM_tenant/, 'nowhere', '/v1/charges', key => 'k4', headers => \@lies);
    nobody('an empty claim', qr/IDEM0102.*OIDC_CLAIM_tenant/, 'void', '/v1/charges', key => 'k4');
    nobody('a claim with the separator', qr/IDEM0103: .*IdempotencyTenant source 'env:OIDC_CLAIM_tenant'.*control/, 'sepT', '/parts', at => 'more', key => 'k4');
    nobody('and the other way round', qr/IDEM0103: .*IdempotencyPrincipal source 'env:OIDC_CLAIM_role'.*control/, 'sepR', '/parts', at => 'more', key => 'k4');
    nobody('a claim with a tab', qr/IDEM0103.*OIDC_CLAIM_tenant.*control/, 'tab', '/v1/charges', key => 'k4');
    nobody('a claim of 256 octets', qr/IDEM0103.*OIDC_CLAIM_tenant.*too long/, 'longer', '/v1/charges', key => 'k4');
    is(api('long', '/v1/charges', key => 'k4')->status, 200, 'a claim of 255 octets runs');
};

subtest 'C010 claims that several share' => sub {
    ran($t, 2, 'issuer and subject', sub { is(api($_, '/subject', at => 'more', key => 'k5')->status, 200, 'runs') for qw(alice bob) });
    my $first = api('alice', '/user', at => 'more', key => 'k5');
    is(($t->records("route = '/user'"))[0]{principal_id}, 'both@example.com', 'the user is the e-mail address');
    is_replay(api('bob', '/user', at => 'more', key => 'k5'), $first, 'who has the same address is the same caller');
    $first = api('alice', '/groups', at => 'more', key => 'k5');
    is(($t->records("route = '/groups'"))[0]{principal_id}, 'a,b', 'a list is joined by commas');
    is_replay(api('bob', '/groups', at => 'more', key => 'k5'), $first, 'so ["a","b"] and ["a,b"] are one caller: no list is an identity');
};

subtest 'C097 tokens in the body' => sub {
    my $urlencoded = 'application/x-www-form-urlencoded';
    my %token = (header => sub { $op->bearer('alice') }, cookie => sub { (Cookie => 'token=' . $op->token('alice')) }, body => sub { () });
    # mod_auth_openidc looks into a form before it looks at cookies; whatever it reads comes back whole
    for my $how ([ 'body', 'access_token=' . $op->token('alice') . '&amount=10', $urlencoded ], [ 'cookie', 'amount=10&amount=20&note=a b', $urlencoded ],
        [ 'header', $body x 3000, 'application/json' ], [ 'cookie', $body x 3000, 'application/json' ], [ 'header', 'amount=10&note=' . 'n' x 40_000, $urlencoded ]) {
        my ($where, $octets, $type) = @$how;
        my $name = "$type, token in $where";
        my $token = $token{$where};
        my $send = sub { my ($b) = @_; return $t->client->post('/subject', user => undef, key => "k6 $name", body => $b, type => $type, host => "more.example.com:$port", headers => [ $token->() ]) };
        my $first = $send->($octets);
        is($first->status, 200, "$name: runs");
        is($first->json->{sha256}, sha256($octets), 'the backend sees the whole body');
        is_replay($send->($octets), $first, 'a retry');
        problem($send->(substr($octets, 0, -1) . 'x'), 'key-reused');
    }
};

subtest 'a browser with a session' => sub {
    my $browser = Idem::Browser->new(port => $port);
    my $rows = $t->record_count;
    my @form = ('/orders', key => 'k7', body => 'amount=10', type => 'application/x-www-form-urlencoded');
    ran($t, 0, 'C017 no session', sub {
        my $sent = $browser->request(POST => 'shop.example.com', @form);
        is($sent->status, 302, 'to the login');
        like($sent->header('Location'), qr/\A\Q@{[ $op->issuer(1) ]}\E/, 'of the issuer');
        is(scalar(grep { $_->[0] =~ /^Idempotency/i } @{ $sent->{fields} }), 0, 'the module has no part in it');
        my $program = $t->client->post(@form, user => undef, host => "shop.example.com:$port", headers => [ Accept => 'application/json' ]);
        ok($program->status == 401 || $program->status == 302, 'a program is refused, too');
    });
    is($t->record_count, $rows, 'it is not recorded');
    $op->login('alice');
    my ($at, $page) = $browser->go("http://shop.example.com:$port/orders");
    is($page->status, 200, "logged in ($at)") or return diag($op->log);
    my $first;
    ran($t, 1, 'with a session', sub {
        $first = $browser->request(POST => 'shop.example.com', @form);
        is($first->status, 200, 'runs');
        is_replay($browser->request(POST => 'shop.example.com', @form), $first, 'again');
    });
    is(($t->records("route = 'orders.create'"))[0]{principal_id}, $op->issuer(1) . "\x{1e}alice", 'the principal is issuer and subject');
    my $again = Idem::Browser->new(port => $port);
    $again->go("http://shop.example.com:$port/orders");
    isnt($again->cookie('shop.example.com'), $browser->cookie('shop.example.com'), 'another session');
    is_replay($again->request(POST => 'shop.example.com', @form), $first, 'C005 another session of the same subject');
    $op->login('bob');
    my $bob = Idem::Browser->new(port => $port);
    $bob->go("http://shop.example.com:$port/orders");
    ran($t, 1, 'another subject', sub { is($bob->request(POST => 'shop.example.com', @form)->status, 200, 'runs') });

    ran($t, 0, 'C013 OIDCUnAuthAction pass', sub {
        for my $headers ([], \@lies) {
            my $refused = $t->client->post('/pass', user => undef, key => 'k7', body => 'amount=10', host => "shop.example.com:$port", headers => $headers);
            ok($refused->status == 403 || $refused->status == 401, 'refused: ' . $refused->status);
            is(index($refused->body, $first->json->{id}), -1, 'nothing of the answer');
        }
    });
};

subtest 'session and token at one address' => sub {
    my $first = api('alice', '/transfers', at => 'both', key => 'k8');
    is($first->status, 200, 'a program');
    is_replay(api('alice', '/transfers', at => 'both', key => 'k8', headers => \@lies), $first, 'again');
    my $cookie = $t->client->post('/transfers', user => undef, key => 'k8', body => $body, host => "both.example.com:$port", headers => [ Cookie => 'token=' . $op->token('alice') ]);
    is_replay($cookie, $first, 'the token in a cookie');
    ran($t, 0, 'neither', sub {
        my $none = $t->client->post('/transfers', user => undef, key => 'k8', body => $body, host => "both.example.com:$port", headers => \@lies);
        ok($none->status == 401 || $none->status == 302, 'is sent to the login: ' . $none->status);
        is(index($none->body, $first->json->{id}), -1, 'nothing of the answer');
    });
    ran($t, 0, 'an issuer that may not', sub { my $refused = api([ 'alice', 2 ], '/transfers', at => 'both', key => 'k8'); ok($refused->status == 401 || $refused->status == 403, 'refused: ' . $refused->status) });
};

is(index($t->httpd->log =~ s/^(?!.*IDEM).*\n//gmr, 'alice'), -1, 'no line of the module names a subject');
$t->finish;
