# The server without the module: what the rest builds on, and what httpd does by itself.
use strict;
use warnings;
use Idem::Test;

my $t = Idem::Test->new(mpm => 'event', module => 0, backends => [qw(cgi proxy fpm)], config => <<'CONF');
ScriptAlias "/cgi" "@CGI@"
ProxyPass "/proxy" "@PROXY@/proxy"
Alias "/php" "@PHP@"
<Directory "@PHP@">
    AllowOverride FileInfo
    Options FollowSymLinks
    <FilesMatch "\.php$">
        SetHandler "@FPM@"
    </FilesMatch>
</Directory>
<Location "/private">
    @AUTH@
</Location>
ScriptAlias "/private" "@CGI@"
CONF
my $c = $t->client;

for my $place (qw(/cgi/x /proxy/x /php/orders/1)) {
    ran($t, 1, $place, sub {
        my $res = $c->post("$place?status=201&header=X-One:%201&header=X-Two:%202", key => 'k', body => '{"a":1}', user => undef);
        is($res->status, 201, "$place: status");
        is($res->header('X-Two'), '2', "$place: fields");
        my $json = $res->json;
        is($json->{length}, 7, "$place: length");
        is($json->{sha256}, sha256('{"a":1}'), "$place: body");
        is($json->{key}, '"k"', "$place: the key passes");
        is($json->{path}, $place, "$place: path");
    });
    my $all = $c->post("$place?octets=all", body => '');
    same_octets($all->body, join('', map { chr } 0 .. 255), "$place: all octets");
    $t->backend->behave(status => 418, header => [ 'A: 1', 'B: 2' ], hold => 1);
    my $waiting = $c->send(POST => $place, body => '{}');
    ok($waiting->silent(0.2), "$place: holds");
    $t->backend->release;
    is($waiting->response->status, 418, "$place: goes on");
    $t->backend->behave;
}

my $chunked = $c->post('/cgi', chunks => [ 'a' x 70_000, 'b' x 3 ]);
is($chunked->json->{length}, 70_003, 'chunked request');
my $connection = $c->connect;
my $one = $c->request(POST => '/cgi?pieces=3&gap=0.05&size=1000', body => '{}', on => $connection, keep => 1);
is($one->{framing}, 'chunked', 'pieces come chunked');
is(length $one->body, 1000, 'and whole');
is($c->request(POST => '/cgi', body => '{}', on => $connection, keep => 1)->status, 200, 'next request on the connection');
is($c->get('/private', user => undef)->status, 401, 'nobody is refused');
is($c->get('/private')->json->{user}, 'a', 'a is let in');
is($c->post('/proxy?die=before', body => '')->status, 502, 'the proxied application dies');
is($c->post('/cgi?exit=3', body => '')->status, 500, 'the script ends without a header');
$t->httpd->expect_log(qr/End of script output before headers/, qr/AH01102|AH00898/);
my @many = $c->parallel(map { [ POST => '/cgi', body => "{\"n\":$_}" ] } 1 .. 30);
is((grep { $_->status == 200 } @many), 30, 'thirty at once');

my ($status, $said) = $t->httpd->configtest("NoSuchDirective On\n");
ok($status, 'configtest refuses');
like($said, qr/NoSuchDirective/, 'and says why');
is(($t->httpd->configtest(''))[0], 0, 'configtest passes');
my @children = $t->httpd->children;
is(@children, 2, 'two children');
$t->httpd->kill_child('KILL', $children[0]);
ok(wait_for(sub { my @now = $t->httpd->children; @now == 2 && !grep { $_ == $children[0] } @now }), 'a child that was killed is replaced');
$t->httpd->graceful;
is($c->post('/cgi', body => '')->status, 200, 'after a graceful restart');

is($t->pg->value('SELECT 1'), 1, 'the database answers');
is_deeply([ $t->pg->query("SELECT 1 AS n, NULL AS nothing, 'x' AS t") ], [ { n => 1, nothing => undef, t => 'x' } ], 'rows');
my $session = $t->pg->session;
$session->run('BEGIN');
is($session->run('SELECT 2'), "2\n", 'a session');
$session->close;
$t->pg->sigstop;
$t->pg->cont;
$t->pg->kill9;
$t->pg->start;
is($t->pg->value('SELECT 3'), 3, 'after a crash');
$t->pg->restart('immediate');
is($t->pg->value('SELECT 4'), 4, 'after a restart');
$t->allow_pg_log(qr/interrupted|not properly shut down/);

$t->finish(more => 1);
my $p = Idem::Test->new(mpm => 'prefork', module => 0, store => 0, config => 'ScriptAlias "/cgi" "@CGI@"');
is($p->client->post('/cgi', body => '{}')->status, 200, 'prefork serves');
$p->finish;
