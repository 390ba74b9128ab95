# A change of what a scope is made of must not happen unseen: every retry of what is still remembered would run again.
use strict;
use warnings;
use Idem::Test;

sub config { return protected({ who => "IdempotencyTenant server\n    IdempotencyPrincipal @_" }, '/charges', 'charges.create') }
my $t = Idem::Test->new(config => config('user'));
my $c = $t->client;
is($c->post('/charges', key => fresh_key(), body => '{}')->status, 200, 'runs') for 1 .. 3;
$t->httpd->graceful(config => $t->expand(config('user')));
is($c->post('/charges', key => fresh_key(), body => '{}')->status, 200, 'the same sources after a restart');
unlike($t->httpd->log, qr/IDEM1401/, 'are nothing to warn of');

$t->httpd->expect_log(qr/IDEM1401: IdempotencyRoute charges\.create: its sources were 'tenant server; principal user' and are 'tenant server; principal user const:x' now: the retries of [45] operations/);
$t->httpd->graceful(config => $t->expand(config('user const:x')));
is($c->post('/charges', key => fresh_key(), body => '{}')->status, 200, 'other sources');
ok(wait_for(sub { $t->httpd->log =~ /IDEM1401/ }, 10), 'are warned of');
$c->post('/charges', key => fresh_key(), body => '{}') for 1 .. 10;
is(scalar(() = $t->httpd->log =~ /IDEM1401/g), 1, 'once, and not by every child');
$t->finish;
