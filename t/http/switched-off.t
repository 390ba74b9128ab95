# A route whose operations are still remembered, and that is not protected any more: seen at start-up.
use strict;
use warnings;
use Idem::Test;

sub config { return protected('/charges', 'charges.create', @_) }
my $t = Idem::Test->new(config => config());
is($t->client->post('/charges', key => fresh_key(), body => '{}')->status, 200, 'one is remembered');
sub warned { my $count = () = $t->httpd->log =~ /IDEM1402/g; return $count }
$t->httpd->graceful(config => $t->expand(config('IdempotencyMode Off')));
ok(wait_for(sub { warned() == 1 }, 20), 'set to Off: a warning, without any request');
my $unprotected = $t->pg->value('SELECT sources FROM idempotency_routes');
like($t->httpd->log, qr/IDEM1402: IdempotencyRoute charges\.create: its mode is Off or Shadow, and 1 operations are still remembered/, 'that says which, and how many');
$t->httpd->graceful(config => $t->expand(config()));
is($t->client->post('/charges', key => fresh_key(), body => '{}')->status, 200, 'set to Enforce again');
ok(wait_for(sub { $t->pg->value('SELECT sources FROM idempotency_routes') ne $unprotected }, 20), 'which the registry is told');
$t->httpd->graceful(config => $t->expand(config('IdempotencyMode Shadow')));
ok(wait_for(sub { warned() == 2 }, 20), 'set to Shadow: likewise');
unlike($t->httpd->log, qr/IDEM1401/, 'nobody takes that for other sources');
$t->httpd->expect_log(qr/IDEM1402/);
$t->finish;
