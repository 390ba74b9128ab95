# What httpd puts around an answer, or a client asks of it: what is kept is the plain entity, and each client gets it in the
# way that it asks for, once.
use strict;
use warnings;
use Idem::Curl;
use Idem::Test;
use IO::Compress::Gzip ();
use IO::Uncompress::Gunzip ();

my $t = Idem::Test->new(backends => [qw(cgi proxy)], modules => [qw(filter deflate brotli session session_cookie buffer http2)], config => sub {
    return join '', "Protocols h2c http/1.1\n",
        protected('/brotli', 'brotli', 'AddOutputFilterByType BROTLI_COMPRESS text/plain'),
        protected({ by => 'proxy' }, '/pbrotli', 'pbrotli', 'SetOutputFilter BROTLI_COMPRESS;DEFLATE'),
        protected('/session', 'session', 'Session On', 'SessionCookieName basket path=/', 'SessionHeader X-Basket', 'SessionMaxAge 600'),
        protected('/buffer', 'buffer', 'SetOutputFilter BUFFER'),
        protected('/cgi', 'cgi'), protected({ by => 'proxy' }, '/proxy', 'proxy'), protected({ by => 'proxy' }, '/keep', 'keep'),
        protected({ by => 'proxy' }, '/inflate', 'inflate', 'SetOutputFilter INFLATE;DEFLATE');
});
my $c = $t->client;
my $plain = join '', map { "line $_ of something that compresses well\n" } 1 .. 300;

sub row { my ($key) = @_; return ($t->records("idem_key = '$key'"))[0] // {} }
sub kept { my ($key) = @_; my $hex = row($key)->{response_body} // return undef; return pack 'H*', substr $hex, 2 }
sub kept_fields { my ($key) = @_; return pack 'H*', substr row($key)->{response_headers}, 2 }

subtest 'C044 brotli, in both orders of client' => sub {
    my $curl = sub { return Idem::Curl->new(base => 'http://localhost:' . $t->httpd->port, user => 'a', options => $_[0] ? ['compressed'] : []) };
    $t->backend->behave(body => $plain, type => 'text/plain');
    for my $at ('/brotli', '/pbrotli') {
        for my $order ([ 1, 0 ], [ 0, 1 ]) {
            my $key = fresh_key();
            ran($t, 1, "$at, @$order", sub {
                for my $n (0, 1) {
                    my $res = $curl->($order->[$n])->post($at, key => $key, body => '{}', headers => $order->[$n] ? [ 'Accept-Encoding' => 'br' ] : []);
                    is($res->header('Content-Encoding'), $order->[$n] ? 'br' : undef, "$at: coded for whom asks for it only");
                    same_octets($res->body, $plain, "$at: the right content");
                    is($res->replayed ? 1 : 0, $n, "$at: " . ($n ? 'a replay' : 'the first'));
                }
            });
            same_octets(kept($key), $plain, "$at: the plain octets are kept");
        }
    }
    $t->backend->behave;
};

subtest 'an answer that the application compressed by itself' => sub {
    IO::Compress::Gzip::gzip(\$plain, \my $gzip);
    $t->backend->behave(body => $gzip, type => 'text/plain', header => [ 'Content-Encoding: gzip', 'Vary: Accept-Encoding' ]);
    # Octet for octet what was answered, to whomever: the application's coding is a part of its answer.
    my $key = fresh_key();
    my $first = $c->post('/proxy', key => $key, body => '{}', headers => [ 'Accept-Encoding' => 'gzip' ]);
    same_octets($first->body, $gzip, 'the first client gets it');
    my $again = $c->post('/proxy', key => $key, body => '{}');
    is_replay($again, $first, 'a client that asks for no coding');
    is($again->header('Content-Encoding'), 'gzip', 'and it says what it is');
    # INFLATE lets httpd keep the plain entity, and negotiate for each client.
    $key = fresh_key();
    $first = $c->post('/inflate', key => $key, body => '{}', headers => [ 'Accept-Encoding' => 'gzip' ]);
    is($first->header('Content-Encoding'), 'gzip', 'with INFLATE;DEFLATE: coded for whom asks for it');
    same_octets(kept($key), $plain, 'the plain octets are kept');
    unlike(kept_fields($key), qr/Content-Encoding/i, 'and no coding');
    $again = $c->post('/inflate', key => $key, body => '{}');
    ok($again->replayed, 'a replay');
    is($again->header('Content-Encoding'), undef, 'plain for a client that asks for nothing');
    same_octets($again->body, $plain, 'and right');
    $t->backend->behave;
};

subtest 'mod_session' => sub {
    my $key = fresh_key();
    $t->backend->behave(header => 'X-Basket: item=book');
    my $first = $c->post('/session', key => $key, body => '{}');
    $t->backend->behave;
    like($first->header('Set-Cookie'), qr/\Abasket=.*item=book/, 'the first client gets its session');
    my $again = $c->post('/session', key => $key, body => '{}');
    is_replay($again, $first, 'a retry from elsewhere');
    unlike($again->header('Set-Cookie') // '', qr/item=book/, "gets no other client's session");
    unlike(kept_fields($key), qr/Set-Cookie|basket|X-Basket/i, 'nor is it in the store');
};

subtest 'ranges' => sub {
    for my $at ('/cgi', '/proxy') {
        my $key = fresh_key();
        $t->backend->behave(size => 1000);
        my @ask = ($at, key => $key, body => '{}', headers => [ Range => 'bytes=0-9' ]);
        my $first = $c->post(@ask);
        like($first->status, qr/\A20[06]\z/, "$at: answered");
        is(length kept($key), 1000, "$at: the whole is kept");
        for my $again ($c->post(@ask), $c->post($at, key => $key, body => '{}')) {
            is($again->status . ' ' . length $again->body, '200 1000', "$at: a replay is the whole answer");
            ok($again->replayed, "$at: marked");
        }
        $t->backend->behave;
    }
};

subtest '1xx before the answer' => sub {
    my $key = fresh_key();
    $t->backend->behave(interim => 103, body => 'done');
    my $first = $c->post('/proxy', key => $key, body => '{}');
    is_deeply([ map { $_->status } @{ $first->{interim} } ], [103], 'passed on to the first client');
    is($first->body, 'done', 'then the answer');
    is($first->header('Link'), undef, 'which has none of its fields');
    my $again = $c->post('/proxy', key => $key, body => '{}');
    is_replay($again, $first, 'a retry');
    is_deeply($again->{interim}, [], 'without a 1xx');
    $t->backend->behave;
};

subtest 'trailers' => sub {
    my $key = fresh_key();
    $t->backend->behave(body => 'with a trailer', trailer => 'X-Checksum: 42');
    my ($first, $again) = map { $c->post('/proxy', key => $key, body => '{}') } 1 .. 2;
    is($first->body, 'with a trailer', 'of the answer');
    is_replay($again, $first, 'a retry');
    unlike(kept_fields($key), qr/checksum/i, 'not kept');
    $t->backend->behave;
    # of the request: they are no part of what the fingerprint sees
    $key = fresh_key();
    ran($t, 1, 'two requests', sub {
        my @answers = map {
            my $trailer = $_;
            my $on = $c->connect;
            (my $text = $c->request_text(POST => '/cgi', key => $key, chunks => ['{"a":1}'])) =~ s/0\r\n\r\n\z/0\r\n$trailer\r\n/;
            $on->write($text);
            $on->{method} = 'POST';
            $on->response;
        } "X-Sum: 1\r\n", "X-Sum: 2\r\n";
        is($answers[0]->json->{sha256}, sha256('{"a":1}'), 'the body is whole');
        is_replay($answers[1], $answers[0], 'with another trailer');
    });
};

subtest 'mod_buffer behind us' => sub {
    my $key = fresh_key();
    $t->backend->behave(size => 200_000, pieces => 4);
    my ($first, $again) = map { $c->post('/buffer', key => $key, body => '{}') } 1 .. 2;
    is(length $first->body, 200_000, 'whole');
    is_replay($again, $first, 'a retry');
    $t->backend->behave;
};

subtest 'C045 a connection to the application that is kept' => sub {
    # the application's own framing is not ours
    my $key = fresh_key();
    my ($first, $again) = map { $c->post('/keep/x?body=framed', key => $key, body => '{}') } 1 .. 2;
    is($first->body, 'framed', 'runs');
    is_replay($again, $first, 'a retry');
    unlike(kept_fields($key), qr/Transfer-Encoding|Connection|Content-Length/i, 'no framing is kept');
};

$t->finish;
