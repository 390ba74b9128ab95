# C110: the stripe SDK as it comes from npm, which retries by itself and sends a bare key, gets one effect.
use strict;
use warnings;
use Idem::Test;
use JSON::PP ();

# The SDK authenticates by a bearer token; a gateway in front (here a rule of the server) says whose it is.
my $t = Idem::Test->new(config => <<'CONF');
SetEnvIf Authorization "^Bearer sk_test_placeholder$" ACCOUNT=acct_1
ScriptAlias "/v1/charges" "@CGI@"
<Location "/v1/charges">
    Require env ACCOUNT
    IdempotencyRoute charges.create
    IdempotencyTenant server
    IdempotencyPrincipal env:ACCOUNT
    IdempotencyTrustEnv ACCOUNT
</Location>
CONF

$t->backend->behave(sleep => 3);
my ($status, $said, $out);
ran($t, 2, 'two orders', sub {
    ($status, $said) = run(cmd => [ 'node', source_dir() . '/t/http/stripe.js', $t->httpd->port ], self => 1, timeout => 60);
    is($status, 0, 'the calls succeed') or diag($said);
    $out = JSON::PP->new->utf8->decode($said);
});
note($said);
my @effects = $t->backend->effects;
is($out->{first}{id}, $effects[0]{id}, "its own key, a second of patience, an application that takes three: the application's answer");
is($out->{first}{status}, 200, 'a success');
like($effects[0]{key}, qr/\Astripe-node-retry-[0-9a-f-]+\z/, 'the key is the bare one that the SDK made');
is($out->{second}, $effects[1]{id}, 'the key of the caller: its own effect');
is($out->{again}, $out->{second}, 'and the same charge when asked again');
is(ref $out->{changed}, 'HASH', 'another amount under the key throws') or diag(explain($out->{changed}));
is($out->{changed}{status}, 422, 'with 422');
like($out->{changed}{message}, qr/key/i, 'and a message that says why');
$t->finish;
