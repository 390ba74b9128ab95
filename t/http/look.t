# The pages for people, in a browser: readable on a phone, charts drawn, nothing from elsewhere, no error.
use strict;
use warnings;
use Idem::Test;
use JSON::PP;

my $t = Idem::Test->new(config => protected('/charges', 'charges.create-with-a-rather-long-name') . <<'CONF');
<Location "/status">
    @AUTH@
    SetHandler idempotency-status
</Location>
<Location "/policy">
    SetHandler idempotency-policy
</Location>
CONF
my $c = $t->client;
$c->post('/charges', key => fresh_key(), body => '{}') for 1 .. 3;
$t->backend->behave(status => 500);
$c->post('/charges', key => fresh_key(), body => '{}');

$t->backend->behave(hold => 1);
my $running = $c->send(POST => '/charges', key => fresh_key(), body => '{}');
ok(wait_for(sub { $c->get('/status?format=json')->json->{running_count} == 1 }, 10), 'one runs meanwhile');

my $base = 'http://localhost:' . $t->httpd->port;
# node's modules lie where the servers' account may not read, and Chromium wants a home of its own
my ($status, $said) = run(cmd => [ 'node', source_dir() . '/t/http/look.js', 'a', "$base/status", "$base/policy" ], self => 1,
    env => { HOME => own_folder('browser') }, dir => source_dir() . '/t', timeout => 120);
is($status, 0, 'the browser ends well') or diag($said);
my %seen = map { ("$_->{url} $_->{width}" =~ s/\A\Q$base\E//r => $_) } map { decode_json($_) } grep { /^\{/ } split /\n/, $said;
for my $name ('/status 375', '/status 1280', '/policy 375', '/policy 1280') {
    my $page = $seen{$name} or fail("$name: seen") or next;
    is($page->{status}, 200, "$name: is there");
    is_deeply($page->{faults}, [], "$name: no error in the console");
    is_deeply($page->{foreign}, [], "$name: nothing from elsewhere");
    cmp_ok($page->{scroll}, '<=', $page->{width}, "$name: no sideways scrolling");
    cmp_ok($page->{text}, '>', 200, "$name: there is something to read");
    ok(length $page->{heading}, "$name: with a heading");
    next unless $name =~ /status/;
    cmp_ok(scalar @{ $page->{charts} }, '>', 0, "$name: charts");
    is_deeply([ grep { $_->{width} < 100 || $_->{height} < 20 } @{ $page->{charts} } ], [], "$name: of a size to be seen");
    cmp_ok((grep { $_->{marks} } @{ $page->{charts} }), '>=', 2, "$name: with what happened drawn in");
}
$t->backend->release;
is($running->response->status, 200, 'what ran meanwhile ends');
$t->finish;
