# Internal redirects: the place that the client named is protected, the application behind gets the whole body, the module
# acts once a request.
use strict;
use warnings;
use Idem::Test;

my $t = Idem::Test->new(backends => [qw(cgi fpm)], modules => ['actions'], config => sub {
    my ($t) = @_;
    my $root = $t->root;
    mkdir "$root/htdocs/$_" for qw(fallback index action action/sub);
    for my $file (qw(fallback/front.cgi index/index.cgi)) {
        spew("$root/htdocs/$file", slurp($t->backend->cgi), 0755);
    }
    spew("$root/htdocs/action/thing.act", "x\n", 0644);
    spew("$root/htdocs/page.html", "sorry\n", 0644);
    # Status and all else is as httpd has it already.
    $t->backend->script('error.cgi', 'Idem::App::note($root, event => "effect", path => "/error"); print "Content-Type: text/plain\n\nsorry\n";');
    $t->backend->script('local.cgi', 'print "Location: /plain\n\n";');
    my $who = "    IdempotencyTenant server\n    IdempotencyPrincipal user\n";
    return join '', <<"CONF",
<Directory "$root/htdocs">
    Options +ExecCGI
    AddHandler cgi-script .cgi
</Directory>
<Directory "$root/app/cgi">
    Options +ExecCGI
</Directory>
<Location "/fallback">
    FallbackResource /fallback/front.cgi
</Location>
DirectoryIndex index.cgi
ScriptAlias "/inside" "\@CGI\@"
ScriptAlias "/plain" "\@CGI\@"
# Behind [PT] httpd asks the inner place who it is.
<Location "/inside">
    \@AUTH\@
</Location>
RewriteRule ^/unasked/(.*)\$ /plain/\$1 [PT]
Action by-script /inside
<Directory "$root/htdocs/action">
    AddHandler by-script .act
</Directory>
RewriteEngine On
RewriteRule ^/pt/(.*)\$ /inside/\$1 [PT]
RewriteRule ^/moved/(.*)\$ $root/app/cgi/app.cgi [H=cgi-script]
ScriptAlias "/local" "$root/app/cgi/local.cgi"
ScriptAlias "/error" "$root/app/cgi/error.cgi"
<Directory "$root/htdocs/hop">
    Options +FollowSymLinks
    RewriteEngine On
    RewriteRule ^ /innerroute
</Directory>
<Location "/brokenplain">
    ErrorDocument 404 /plain
</Location>
<Location "/brokenpage">
    ErrorDocument 404 /page.html
</Location>
<Location "/broken">
    ErrorDocument 404 /error
</Location>
CONF
        protected({ by => 'fpm' }, '/php', 'auto'),
        (map { protected({ by => 'none' }, $_, 'auto') } qw(/fallback /index /action /pt /moved /local /broken /brokenplain /brokenpage /unasked)),
        protected({ by => 'none' }, '/named/pt', 'named'), "RewriteRule ^/named/pt/(.*)\$ /inside/\$1 [PT]\n",
        # A route that only the inner place has.
        protected({ by => 'cgi' }, '/innerroute', 'inner'), "RewriteRule ^/outer\$ /innerroute [PT]\n";
});
my $c = $t->client;

sub row { return ($t->records(@_))[0] // {} }

# `RewriteRule` lines after the sections are server configuration too: the place of a line does not matter.
my @place = (
    [ '/php/api/a', '/php/api/b', 'C103 a per-directory rewrite to a front controller' ],
    [ '/fallback/api/a', '/fallback/api/b', 'C103 FallbackResource' ],
    [ '/index/', undef, 'DirectoryIndex' ],
    [ '/action/thing.act', undef, 'Action' ],
    [ '/pt/a', '/pt/b', 'a rewrite with [PT]' ],
    [ '/moved/a', '/moved/b', 'a rewrite of the server with [H=]' ],
);
for my $place (@place) {
    my ($one, $two, $name) = @$place;
    subtest $name => sub {
        my $key = fresh_key();
        my $body = "{\"n\":\"" . 'x' x 300_000 . "\"}";
        my ($first, $second);
        ran($t, 1, 'twice', sub { ($first, $second) = map { $c->post("$one?status=201", key => $key, body => $body) } 1 .. 2 });
        is($first->status, 201, "the application's status");
        is($first->json->{sha256}, sha256($body), 'the whole body');
        is($first->json->{method}, 'POST', 'the method');
        is_replay($second, $first, 'a retry');
        is($t->record_count("idem_key = '$key'"), 1, 'one record');
        is(row("idem_key = '$key'")->{route}, "POST $one", 'the route is what the client named');
        is(scalar(my @all = $first->values('Idempotency-Operation')), 1, 'one operation');
        problem($c->post("$one?status=201", key => $key, body => '{}'), 'key-reused');
        my $chunked;
        ran($t, 1, 'chunked', sub { $chunked = $c->post($one, key => "$key-c", chunks => [ unpack '(a8000)*', $body ]) });
        is($chunked->json->{sha256}, sha256($body), 'the whole body, chunked');
        if ($two) {
            ran($t, 1, 'the other path', sub {
                my $other = $c->post("$two?status=201", key => $key, body => $body);
                is($other->status, 201, 'runs by itself');
                ok(!$other->replayed, 'no reply of the first');
            });
            is(row("idem_key = '$key' AND route = 'POST $two'")->{status}, 'SUCCEEDED', 'with a record of its own');
        }
        problem($c->post($one, key => '', headers => [ 'Idempotency-Key' => '' ], body => '{}'), 'key-malformed');
    };
}

subtest 'a name across [PT]' => sub {
    my $key = fresh_key();
    my $first = $c->post('/named/pt/a', key => $key, body => '{}');
    is($first->status, 200, 'runs');
    is_replay($c->post('/named/pt/a', key => $key, body => '{}'), $first, 'a retry');
    problem($c->post('/named/pt/b', key => $key, body => '{}'), 'key-reused');
    problem($c->post('/named/pt/b', body => '{}'), 'key-missing');
};

subtest 'behind [PT] nobody was asked who it is' => sub {
    ran($t, 0, 'refused', sub { problem($c->post('/unasked/a', key => fresh_key(), body => '{}'), 'identity-missing') });
    $t->httpd->expect_log(qr/IdempotencyPrincipal.*user/);
};

subtest 'a route that only the inner place has' => sub {
    my $key = fresh_key();
    my ($first, $second);
    ran($t, 1, 'twice', sub { ($first, $second) = map { $c->post('/outer', key => $key, body => '{"a":1}') } 1 .. 2 });
    is($first->json->{sha256}, sha256('{"a":1}'), 'the whole body');
    is_replay($second, $first, 'a retry');
    problem($c->post('/outer', body => '{}'), 'key-missing');
};

subtest 'two public paths that lead to it' => sub {
    my $key = fresh_key();
    my ($first, $second);
    mkdir $t->root . '/htdocs/hop';
    ran($t, 1, 'twice', sub { ($first, $second) = map { $c->post('/hop/a', key => $key, body => '{"a":1}') } 1 .. 2 });
    is($first->status, 200, 'runs') or diag($first->body);
    is_replay($second, $first, 'a retry');
    ran($t, 0, 'the other path', sub { problem($c->post('/hop/b', key => $key, body => '{"a":1}'), 'key-reused', operation => 1) });
};

subtest 'a CGI that answers by a local Location' => sub {
    my $key = fresh_key();
    my ($first, $second);
    ran($t, 1, 'twice', sub { ($first, $second) = map { $c->post('/local', key => $key, body => '{"a":1}') } 1 .. 2 });
    is($first->status, 200, 'answered by the other place');
    is_replay($second, $first, 'a retry');
};

subtest 'C103 ErrorDocument' => sub {
    my $key = fresh_key();
    my $rows = $t->record_count;
    ran($t, 2, 'httpd finds nothing, a script words it', sub {
        for (1 .. 2) {
            my $res = $c->post('/broken/x', key => $key, body => '{}');
            is($res->status, 404, 'not found');
            is($res->body, "sorry\n", 'in the words of the script');
            ok(!$res->replayed, 'nothing is replayed');
        }
    });
    is($t->record_count, $rows, 'no record');
    ran($t, 0, 'a page words it', sub {
        for (1 .. 2) {
            my $res = $c->post('/brokenpage/x', key => $key, body => '{}');
            is($res->status, 404, 'not found');
            is($res->body, "sorry\n", 'in the words of the page');
        }
    });
    is($t->record_count, $rows, 'no record');
    ran($t, 2, 'a script words it as a success', sub {
        ok(!$c->post('/brokenplain', key => $key, body => '{}')->replayed, 'nothing is replayed') for 1 .. 2;
    });
    is($t->record_count, $rows, 'no record');
};

subtest 'other requests of the same places' => sub {
    my $rows = $t->record_count;
    for my $place (qw(/php/api/a /fallback/api/a /index/ /pt/a)) {
        is($c->get($place)->status, 200, "GET $place");
        is($c->post($place, body => '{}')->status, 200, "POST $place without a key");
    }
    is($t->record_count, $rows, 'no record');
};

$t->finish;
