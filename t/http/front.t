# The ways in which httpd sends a request elsewhere before or behind the handler, with the rules that applications come
# with: the place that the client named is protected, the effect happens once, an answer is an answer.
use strict;
use warnings;
use Idem::Test;

my $t = Idem::Test->new(backends => [qw(cgi proxy fpm)], modules => [qw(negotiation include filter autoindex)], config => sub {
    my ($t) = @_;
    my $root = $t->root;
    my $docs = "$root/htdocs";
    mkdir "$docs/$_" for qw(neg dirs wp laravel symfony symfony2 ssi rw);
    my $php = slurp("$root/app/php/index.php");
    spew("$docs/$_/index.php", $php, 0644) for qw(wp laravel symfony symfony2);
    spew("$docs/$_", slurp($t->backend->cgi), 0755) for qw(neg/page.cgi dirs/index.cgi rw/target.cgi);
    spew("$docs/ssi/page.shtml", 'a <!--#include virtual="/plain?body=inner&type=text/plain" --> z', 0644);
    # As their documentation has them, for an application that does not lie at the top.
    spew("$docs/wp/.htaccess", <<'RULES', 0644);
RewriteEngine On
RewriteRule .* - [E=HTTP_AUTHORIZATION:%{HTTP:Authorization}]
RewriteBase /wp/
RewriteRule ^index\.php$ - [L]
RewriteCond %{REQUEST_FILENAME} !-f
RewriteCond %{REQUEST_FILENAME} !-d
RewriteRule . /wp/index.php [L]
RULES
    spew("$docs/laravel/.htaccess", <<'RULES', 0644);
Options -MultiViews -Indexes
RewriteEngine On
RewriteCond %{HTTP:Authorization} .
RewriteRule .* - [E=HTTP_AUTHORIZATION:%{HTTP:Authorization}]
RewriteCond %{REQUEST_FILENAME} !-d
RewriteCond %{REQUEST_URI} (.+)/$
RewriteRule ^ %1 [L,R=301]
RewriteCond %{REQUEST_FILENAME} !-d
RewriteCond %{REQUEST_FILENAME} !-f
RewriteRule ^ index.php [L]
RULES
    spew("$docs/symfony/.htaccess", <<'RULES', 0644);
DirectoryIndex index.php
Options -MultiViews
RewriteEngine On
RewriteCond %{REQUEST_URI}::$0 ^(/.+)/(.*)::\2$
RewriteRule .* - [E=BASE:%1]
RewriteCond %{HTTP:Authorization} .+
RewriteRule ^ - [E=HTTP_AUTHORIZATION:%0]
RewriteCond %{ENV:REDIRECT_STATUS} =""
RewriteRule ^index\.php(?:/(.*)|$) %{ENV:BASE}/$1 [R=301,L]
RewriteCond %{REQUEST_FILENAME} !-f
RewriteRule ^ %{ENV:BASE}/index.php [L]
RULES
    spew("$docs/symfony2/.htaccess", "FallbackResource /symfony2/index.php\n", 0644);
    my $base = <<"CONF";
<Directory "$docs">
    AllowOverride All
    Options +ExecCGI +FollowSymLinks
    AddHandler cgi-script .cgi
    DirectoryIndex index.cgi index.php
    <FilesMatch "\\.php\$">
        SetHandler "\@FPM\@"
    </FilesMatch>
</Directory>
<Directory "$docs/neg">
    Options +MultiViews
    MultiviewsMatch Handlers
</Directory>
<Directory "$docs/ssi">
    Options +Includes
    AddOutputFilter INCLUDES .shtml
    AddType text/html .shtml
</Directory>
ScriptAlias "/plain" "\@CGI\@"
RewriteEngine On
RewriteRule ^/rewritten/ /rw/target.cgi
RewriteRule ^/passed/(.*)\$ \@PROXY\@/passed/\$1 [P]
<If "-n %{HTTP:X-Pay}">
    \@AUTH\@
    IdempotencyRoute if
    IdempotencyTenant server
    IdempotencyPrincipal user
</If>
ScriptAlias "/conditional" "\@CGI\@"
ScriptAlias "/denied" "\@CGI\@"
CONF
    return $base . join '', (map { protected({ by => 'none' }, $_, 'auto') } qw(/wp /laravel /symfony /symfony2 /neg /dirs /ssi /rewritten /passed)),
        (map { my ($name, $doc) = @$_; "Alias \"/doc_$name\" \"$docs\"\n" . protected({ by => 'none' }, "/doc_$name", "doc.$name", "ErrorDocument 404 $doc", "ErrorDocument 403 $doc",
            '<If "%{REQUEST_URI} =~ /denied/">', '    Require all denied', '</If>') } [ text => '"not here"' ], [ remote => 'http://localhost/elsewhere' ], [ script => '/plain?body=script&status=404' ]);
});
my $c = $t->client;

# Two posts with one key, and one to another path: one effect each, the route is what was asked for.
sub front {
    my ($name, $one, $two, %arg) = @_;
    subtest $name => sub {
        my $key = fresh_key();
        my $body = '{"n":"' . 'x' x 100_000 . '"}';
        my ($first, $second, $other);
        ran($t, 1, 'twice', sub { ($first, $second) = map { $c->post($one, key => $key, chunks => [ unpack '(a7000)*', $body ]) } 1 .. 2 });
        is($first->status, 200, 'runs') or diag($first->body);
        is($first->json->{sha256}, sha256($body), 'with the whole body') unless $arg{page};
        is_replay($second, $first, 'a retry');
        is(($t->records("idem_key = '$key'"))[0]{route}, "POST $one" =~ s/\?.*//r, 'the route is the path as asked for');
        return unless $two;
        ran($t, 1, 'another path', sub { $other = $c->post($two, key => $key, chunks => [ unpack '(a7000)*', $body ]) });
        is($other->status . ($other->replayed ? ' replayed' : ''), 200, 'runs by itself');
    };
}

front('C103 as WordPress has it', '/wp/wp-json/wc/v3/orders', '/wp/wp-json/wc/v3/refunds');
front('C103 as Laravel has it', '/laravel/api/orders', '/laravel/api/refunds');
front('C103 as Symfony has it', '/symfony/api/orders', '/symfony/api/refunds');
front('C103 as Symfony has it, FallbackResource', '/symfony2/api/orders', '/symfony2/api/refunds');
front('content negotiation', '/neg/page', undef);
front('a rewrite of the server, without [PT]', '/rewritten/a', '/rewritten/b');
front('a rewrite with [P]', '/passed/a', '/passed/b');
front('a directory', '/dirs/', undef);
front('a page whose part is made by a subrequest', '/ssi/page.shtml', undef, page => 1);

subtest 'redirects that the rules or httpd give' => sub {
    for my $case ([ '/dirs', 301, 'DirectorySlash' ], [ '/laravel/api/orders/', 301, "Laravel's trailing slash" ], [ '/symfony/index.php/api/x', 301, "Symfony's script name" ]) {
        my ($at, $status, $name) = @$case;
        my $key = fresh_key();
        my $rows = $t->record_count;
        ran($t, 0, $name, sub {
            my $res = $c->post($at, key => $key, body => '{}');
            is($res->status, $status, "$name: elsewhere, says httpd");
            ok($res->header('Location'), "$name: and where");
        });
        is($t->record_count, $rows, "$name: nothing ran, so there is no record");
    }
};

subtest 'the part of a page' => sub {
    my $res = $c->post('/ssi/page.shtml', key => fresh_key(), body => '{}');
    is($res->body, 'a inner z', 'is in it');
};

subtest '<If>' => sub {
    my $key = fresh_key();
    my @pay = (headers => [ 'X-Pay' => '1' ]);
    my ($first, $second);
    ran($t, 1, 'twice', sub { ($first, $second) = map { $c->post('/conditional', key => $key, body => '{}', @pay) } 1 .. 2 });
    is_replay($second, $first, 'under the condition');
    problem($c->post('/conditional', body => '{}', @pay), 'key-missing');
    my $rows = $t->record_count;
    ran($t, 2, 'twice', sub { ok(!$c->post('/conditional', key => $key, body => '{}')->replayed, 'not else') for 1 .. 2 });
    is($t->record_count, $rows, 'no record');
};

subtest 'ErrorDocument where httpd refuses by itself' => sub {
    for my $case ([ text => 404, 'not here' ], [ remote => 302 ], [ script => 404, 'script' ]) {
        my ($name, $status, $says) = @$case;
        for my $path ('/none', '/denied') {
            my $rows = $t->record_count;
            my $key = fresh_key();
            for (1 .. 2) {
                my $res = $c->post("/doc_$name$path", key => $key, body => '{}');
                is($res->status, $path eq '/denied' && $name eq 'text' ? 403 : $status, "$name, $path: as httpd says");
                is($res->body, $says, "$name, $path: in these words") if defined $says;
                ok(!$res->replayed, "$name, $path: no replay");
            }
            is($t->record_count, $rows, "$name, $path: no record");
        }
    }
    $t->httpd->allow_log(qr/AH01630|AH01797/);
};

$t->finish;
