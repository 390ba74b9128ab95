# How sections merge: which route, and whose tenant and principal, count for a request.
use strict;
use warnings;
use Idem::Test;

my $t = Idem::Test->new(config => <<'CONF');
IdempotencyTenant    const:main
IdempotencyPrincipal user
ScriptAlias /a "@CGI@"
<Location "/a">
    @AUTH@
    IdempotencyRoute outer
    IdempotencyTenant const:outer const:two
</Location>
<Location "/a/inner">
    IdempotencyTenant const:inner
    IdempotencyRetention 1h
</Location>
<Location "/a/other">
    IdempotencyRoute other revision=7
</Location>
<Location "/a/none">
    IdempotencyRoute None
</Location>
<Location "/a/none/again">
    IdempotencyRoute again
</Location>
<LocationMatch "^/a/shops/(?<SHOP>[a-z]+)/(?<WHAT>[a-z]+)$">
    IdempotencyRoute "%{MATCH_WHAT} of %{MATCH_SHOP}"
</LocationMatch>
<LocationMatch "^/a/(?:sorted)$">
    IdempotencyRoute first
</LocationMatch>
<Location "/a/sorted">
    IdempotencyRoute second
</Location>
<If "%{REQUEST_URI} =~ m#^/a/cond# && -n %{HTTP:X-Cond}">
    IdempotencyRoute conditional
    IdempotencyTenant const:conditional
</If>
<Location "/a/put">
    IdempotencyRoute put methods=PUT,PROPPATCH
</Location>
<Directory "@ROOT@">
    IdempotencyTenant const:directory
</Directory>
<VirtualHost *:@PORT@>
    ServerName localhost
</VirtualHost>
<VirtualHost *:@PORT@>
    ServerName host.example
    IdempotencyTenant const:host
    IdempotencyKey Optional
    ScriptAlias /b "@CGI@"
    <Location "/b">
        @AUTH@
        IdempotencyRoute auto
    </Location>
    <Location "/a/other">
        IdempotencyTenant server
    </Location>
</VirtualHost>
CONF
$t->httpd->allow_log(qr{IDEM\d+: IdempotencyRoute \w+: its sources were}); # sections of one name differ here on purpose
my $c = $t->client;
my $body = '{"amount":10}';

# Route, revision and tenant of the record that a request made; undef where it made none.
sub record_of {
    my ($method, $place, %arg) = @_;
    my $key = fresh_key();
    my $response = $c->request($method, $place, key => $key, body => $body, %arg);
    is($response->status, 200, "$method $place runs") or diag($response->body);
    my ($record) = $t->records("idem_key = '$key'");
    return $record ? join ' | ', map { s/\x1e/+/gr } @$record{qw(route api_revision tenant_id)} : undef;
}

is(record_of(POST => '/a'), 'outer | 1 | outer+two', 'a Location goes before the server');
is(record_of(POST => '/a/deeper'), 'outer | 1 | outer+two', 'and holds below its path');
is(record_of(POST => '/a/inner'), 'outer | 1 | inner', 'an inner list replaces the outer one whole; the route is inherited');
is(record_of(POST => '/a/other'), 'other | 7 | outer+two', 'an inner route replaces the outer one with its options; the tenant is inherited');
is(record_of(POST => '/a/none'), undef, 'None takes a part out');
is(record_of(POST => '/a/none/deeper'), undef, 'and what lies below it');
is(record_of(POST => '/a/none/again'), 'again | 1 | outer+two', 'until a route is named again');
is(record_of(POST => '/a/shops/acme/orders'), 'orders of acme | 1 | outer+two', 'captures of a LocationMatch');
is(record_of(POST => '/a/sorted'), 'second | 1 | outer+two', 'Location and LocationMatch: the later one in the file');
is(record_of(POST => '/a/cond'), 'outer | 1 | outer+two', 'an If that does not hold');
is(record_of(POST => '/a/cond', headers => [ 'X-Cond' => 1 ]), 'conditional | 1 | conditional', 'an If goes last');
is(record_of(PUT => '/a/put'), 'put | 1 | outer+two', 'methods=');
is(record_of(POST => '/a/put'), undef, 'and no other');
is(record_of(PATCH => '/a'), 'outer | 1 | outer+two', 'PATCH by default');
is(record_of(PUT => '/a'), undef, 'PUT not');
is(record_of(POST => '/a/other', host => 'host.example'), 'other | 7 | host.example', 'a virtual host inherits the sections of the server, and its own go last');
is(record_of(POST => '/a', host => 'host.example'), 'outer | 1 | outer+two', 'what a virtual host says outside of sections goes before the server\'s, and after no section');
is(record_of(POST => '/b/x', host => 'host.example'), 'POST /b/x | 1 | directory', 'auto; a Directory goes before the virtual host');
is($c->post('/b/x', body => $body, host => 'host.example')->status, 200, 'where the virtual host makes the key optional');

subtest 'a capture has to be sound' => sub {
    is(record_of(POST => '/a/shops/acme/' . 'o' x 200), 'o' x 200 . ' of acme | 1 | outer+two', 'a name of less than 255 octets');
    problem($c->post('/a/shops/acme/' . 'o' x 250, key => fresh_key(), body => $body), 'route-unresolved');
};

$t->finish;
