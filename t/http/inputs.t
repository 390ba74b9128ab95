# The request body among modules that read, judge, unpack or cut it: the application gets all of it or nothing runs, and
# what is refused on the way leaves no record. mod_security2 in both orders of loading.
use strict;
use warnings;
use Idem::Test;
use Digest::SHA ();
use IO::Compress::Gzip ();
use JSON::PP ();
use MIME::Base64 ();

my $MIB = 1024 * 1024;
my $secret = 'thirty-two-octets-of-no-secrecy!';

sub security {
    my ($root) = @_;
    return <<"CONF";
SecRuleEngine On
SecRequestBodyAccess On
SecRequestBodyLimit 131072
SecRequestBodyInMemoryLimit 65536
SecRequestBodyNoFilesLimit 16777216
SecRequestBodyLimitAction ProcessPartial
SecResponseBodyAccess On
SecResponseBodyMimeType application/json text/plain
SecResponseBodyLimitAction ProcessPartial
SecDataDir $root/run
SecTmpDir $root/run
SecAuditEngine Off
SecAction "id:10,phase:1,nolog,pass,ctl:forceRequestBodyVariable=On"
SecRule REQUEST_BODY "\@contains evil" "id:1,phase:2,t:none,deny,status:403"
SecRule RESPONSE_BODY "\@contains leaked" "id:2,phase:4,t:none,deny,status:503"
CONF
}

sub places {
    return join '', protected('/cgi', 'cgi'), protected({ by => 'proxy' }, '/proxy', 'proxy'), protected({ by => 'fpm' }, '/php', 'php'),
        map { protected({ by => $_ }, "/gz_$_", "gz.$_", $_[0] ? 'SecRuleEngine Off' : (), 'SetInputFilter DEFLATE') } qw(cgi proxy);
}

my $first = Idem::Test->new(backends => [qw(cgi proxy fpm)], modules => [qw(unique_id security2 deflate filter auth_openidc)], config => sub {
    my ($t) = @_;
    # at work before it has read a word
    $t->backend->script('eager.cgi', 'Idem::App::note($root, event => "effect", key => "eager"); 1 while read STDIN, my $b, 65536; print "Content-Type: text/plain\n\nok\n";');
    return security($t->root) . places(1) . "ScriptAlias \"/gz_eager\" \"$t->{root}/app/cgi/eager.cgi\"\n"
        . protected({ by => 'none' }, '/gz_eager', 'gz.eager', 'SecRuleEngine Off', 'SetInputFilter DEFLATE') . <<"CONF";
OIDCCryptoPassphrase x
OIDCOAuthVerifySharedKeys plain#1#$secret
OIDCCacheDir $t->{root}/run
ScriptAlias "/oidc" "\@CGI\@"
<Location "/oidc">
    AuthType oauth20
    OIDCOAuthAcceptTokenAs header cookie:token post
    Require claim role:payer
    IdempotencyRoute oidc
    IdempotencyTenant env:OIDC_CLAIM_tenant
    IdempotencyPrincipal env:OIDC_CLAIM_iss env:OIDC_CLAIM_sub
</Location>
CONF
});

sub security_keeps_hands_off {
    my ($t, $order) = @_;
    my $c = $t->client;
    subtest "C095 mod_security2, $order" => sub {
        for my $place (qw(/cgi /proxy /php/x)) {
            for my $size (200, 100_000, $MIB) {
                my $body = '{"n":"' . 'x' x ($size - 8) . '"}';
                my ($one, $two);
                my $key = fresh_key();
                ran($t, 1, "$place, $size", sub { ($one, $two) = map { $c->post($place, key => $key, $_ == 1 ? (body => $body) : (chunks => [ unpack '(a9999)*', $body ])) } 1 .. 2 });
                is($one->json->{sha256}, sha256($body), "$place, $size: the whole body, as sent");
                is_replay($two, $one, "$place, $size, chunked");
            }
            my $key = fresh_key();
            my $rows = $t->record_count;
            ran($t, 0, "$place, judged", sub { is($c->post($place, key => $key, body => '{"a":"evil"}')->status, 403, "$place: refused by a rule on the body") });
            is($t->record_count, $rows, "$place: no record");
            ran($t, 1, "$place, corrected", sub { is($c->post($place, key => $key, body => '{"a":"good"}')->status, 200, "$place: the key is free") });
        }
        ran($t, 0, 'over our own limit', sub { problem($c->post('/cgi', key => fresh_key(), body => 'x' x (8 * $MIB + 1)), 'payload-too-large') });
        # A rule on the response stands between us and the client: what was answered stays, and is judged each time.
        my $key = fresh_key();
        $t->backend->behave(body => '{"a":"leaked"}');
        ran($t, 1, 'a response that is held back', sub { is($c->post('/cgi', key => $key, body => '{}')->status, 503, 'by its rule') for 1 .. 2 });
        $t->backend->behave;
        is(($t->records("idem_key = '$key'"))[0]{status}, 'SUCCEEDED', 'the operation succeeded');
    };
    $t->httpd->expect_log(qr/ModSecurity: Access denied/);
    $t->httpd->allow_log(qr/ModSecurity/);
}

security_keeps_hands_off($first, 'loaded before us');

subtest 'C097 mod_auth_openidc looks for a token in the body' => sub {
    my $b64 = sub { return MIME::Base64::encode_base64url($_[0]) };
    my $token = sub {
        my (%claims) = @_;
        my $text = join '.', map { $b64->(JSON::PP->new->canonical->encode($_)) } { alg => 'HS256', typ => 'JWT', kid => '1' },
            { iss => 'https://op.example', sub => 'alice', tenant => 't1', role => 'payer', exp => time + 600, %claims };
        return "$text." . $b64->(Digest::SHA::hmac_sha256($text, $secret));
    };
    my $c = $first->client->with(user => undef);
    my $alice = $token->();
    for my $how ([ 'in the header', Authorization => "Bearer $alice" ], [ 'in a cookie', Cookie => "token=$alice" ]) {
        my ($where, @field) = @$how;
        for my $body ([ 'application/json', '{"amount":10}', '{"amount":11}' ], [ 'application/x-www-form-urlencoded', 'amount=10&to=bob', 'amount=11&to=bob' ]) {
            my ($type, $text, $other) = @$body;
            my $key = fresh_key();
            my @request = ('/oidc', key => $key, headers => \@field, type => $type);
            my ($one, $two);
            ran($first, 1, "$where, $type", sub { ($one, $two) = map { $c->post(@request, body => $text) } 1 .. 2 });
            is($one->status, 200, "$where, $type: runs");
            is($one->json->{sha256}, sha256($text), "$where, $type: with the whole body");
            is_replay($two, $one, "$where, $type");
            problem($c->post(@request, body => $other), 'key-reused');
            is(($first->records("idem_key = '$key'"))[0]{principal_id}, "https://op.example\x1ealice", "$where, $type: whose it is") if $type =~ /json/;
        }
    }
    # The token in the body itself, which is part of what was sent; a form that its second telling would change, too.
    for my $form ("amount=10&access_token=$alice", "access_token=$alice&to=bob&to=eve&memo=a%20b+c&empty=") {
        my @request = ('/oidc', key => fresh_key(), type => 'application/x-www-form-urlencoded');
        my ($one, $two);
        ran($first, 1, 'in the body', sub { ($one, $two) = map { $c->post(@request, body => $form) } 1 .. 2 });
        is($one->status, 200, 'in the body: runs');
        is($one->json->{sha256}, sha256($form), 'in the body: with all of it, once and as it was sent');
        is_replay($two, $one, 'in the body');
        problem($c->post(@request, body => $form =~ s/amount=10|to=bob/to=mallory/r), 'key-reused');
    }
    subtest 'C015 a replay is behind authorization too' => sub {
        my $key = fresh_key();
        my @request = ('/oidc', key => $key, body => '{"amount":10}');
        my $one = $c->post(@request, headers => [ Authorization => "Bearer $alice" ]);
        is($one->status, 200, 'with the claim that is required');
        my $less = $c->post(@request, headers => [ Authorization => 'Bearer ' . $token->(role => 'guest') ]);
        like($less->status, qr/\A40[13]\z/, 'without it: refused');
        is(index($less->body, $one->json->{id}), -1, 'and nothing of the first answer is in it');
        is($less->operation, undef, 'not even its operation');
    };
    $first->httpd->allow_log(qr/auth_openidc|AH0163[01]/);
};

subtest 'a compressed request body' => sub {
    my $c = $first->client;
    my $text = '{"list":"' . join('', map { sha256($_) } 1 .. 1000) . '"}';
    IO::Compress::Gzip::gzip(\$text, \my $gzip);
    for my $place (qw(/gz_cgi /gz_proxy)) {
        my @request = ($place, key => fresh_key(), headers => [ 'Content-Encoding' => 'gzip' ]);
        my ($one, $two);
        ran($first, 1, $place, sub { ($one, $two) = map { $c->post(@request, body => $gzip) } 1 .. 2 });
        is($one->status, 200, "$place: runs");
        is($one->json->{sha256}, sha256($text), "$place: the application gets it unpacked");
        is_replay($two, $one, $place);
        # Not the octets that were sent: the same content, packed otherwise, is another request.
        IO::Compress::Gzip::gzip(\$text, \my $other, -Level => 1);
        problem($c->post(@request, body => $other), 'key-reused');
        # Damaged: the script may be at work already when the filter finds out. However often it comes, it is not run again.
        my $damaged = substr($gzip, 0, 20_000) . ("\xff" x 40) . substr $gzip, 20_040;
        my $runs = executed($first, sub {
            my $key = fresh_key();
            my @answers = map { $c->post($place, key => $key, headers => [ 'Content-Encoding' => 'gzip' ], body => $damaged) } 1 .. 3;
            cmp_ok($_->status, '>=', 400, "$place: a damaged one is refused") for @answers;
        });
        cmp_ok($runs, '<=', 1, "$place: and never runs twice");
    }
    # more than a pipe holds before the damage, so that the script has to read
    my $long = join '', map { sha256($_) } 1 .. 20_000;
    IO::Compress::Gzip::gzip(\$long, \my $packed);
    my $damaged = substr($packed, 0, -1000) . ("\xff" x 40) . substr $packed, -960;
    my $key = fresh_key();
    ran($first, 1, 'a script that was at work before its body was found to be damaged', sub {
        for (1 .. 3) {
            cmp_ok($c->post('/gz_eager', key => $key, headers => [ 'Content-Encoding' => 'gzip' ], body => $damaged)->status, '>=', 400, 'refused');
        }
    });
    $first->httpd->allow_log(qr/AH01270|AH01095|AH02608|AH0139\d|zlib/i);
};

subtest 'C106 bad framing' => sub {
    my $c = $first->client;
    my $rows = $first->record_count;
    ran($first, 0, 'all', sub {
        for my $case ([ 'a length that is none', "Content-Length: x\r\n", '{}' ], [ 'a chunk of -2', "Transfer-Encoding: chunked\r\n", "-2\r\n{}\r\n0\r\n\r\n" ],
            [ 'a chunk that is longer than it says', "Transfer-Encoding: chunked\r\n", "2\r\n{}xx\r\n0\r\n\r\n" ],
            [ 'an unknown coding', "Transfer-Encoding: strange\r\n", '{}' ], [ 'two lengths', "Content-Length: 2\r\nContent-Length: 3\r\n", '{}x' ]) {
            my ($name, $fields, $body) = @$case;
            my ($head) = $c->request_text(POST => '/cgi', key => fresh_key(), no_length => 1, keep => 1) =~ /\A(.*\r\n)\r\n\z/s;
            my $on = $c->connect;
            $on->write("$head$fields\r\n$body");
            my $answer = $on->response;
            like($answer->status, qr/\A(?:400|501)\z/, "$name: refused");
            ok(wait_for(sub { $on->closed(0.2) }), "$name: one answer, and the end of the connection");
        }
    });
    is($first->record_count, $rows, 'no record');
    $first->httpd->allow_log(qr/AH0(?:1587|1588|1589|1590|2606|2607)|ModSecurity/);
};

# The other order, and impatience: a body that drips ends by itself, and holds no connection to the registry meanwhile.
my $second = Idem::Test->new(pg => $first->pg, backends => [qw(cgi proxy fpm)], modules => [qw(unique_id deflate filter)],
    config => sub {
        my ($t) = @_;
        return "LoadModule security2_module $t->{httpd}{module_dir}/mod_security2.so\n" . security($t->root) . "RequestReadTimeout header=20 body=2\nDBDMax 2\n" . places(1);
    });
security_keeps_hands_off($second, 'loaded after us');

subtest 'a slow body' => sub {
    my $c = $second->client;
    my $rows = $second->record_count;
    ran($second, 2, 'others go on meanwhile', sub {
        my $whole = $c->request_text(POST => '/cgi', key => fresh_key(), body => 'x' x 1000, keep => 1);
        my @slow = map { my $on = $c->connect; $on->write(substr $whole, 0, -500); $on } 1 .. 8;
        my $busy = sub { return $second->pg->value("SELECT count(*) FROM pg_stat_activity WHERE usename = 'web' AND state <> 'idle'") };
        is($c->post('/cgi', key => fresh_key(), body => '{}')->status, 200, 'with one connection to the registry for all, another request runs');
        is($busy->(), 0, 'and nobody holds the connection');
        for my $on (@slow) {
            my $answer = $on->response;
            is($answer && $answer->status, 408, 'it ends with 408') if $answer;
            ok(wait_for(sub { $on->closed(0.2) }), 'and the connection does');
        }
        is($c->post('/cgi', key => fresh_key(), body => '{}')->status, 200, 'afterwards too');
    });
    is($second->record_count, $rows + 2, 'no record of the slow ones');
};

$first->finish(more => 1);
$second->finish;
