# Between the application and the client other filters work: what is kept is the plain entity, and a replay goes through
# the same filters once.
use strict;
use warnings;
use Idem::Test;
use IO::Uncompress::Gunzip ();

my $t = Idem::Test->new(backends => [qw(cgi proxy)], modules => [qw(filter deflate substitute include expires)], config => join '',
    protected('/deflate', 'deflate', 'AddOutputFilterByType DEFLATE application/json text/plain'),
    protected({ by => 'proxy' }, '/pdeflate', 'pdeflate', 'SetOutputFilter DEFLATE'),
    protected('/substitute', 'substitute', 'AddOutputFilterByType SUBSTITUTE application/json', 'Substitute "s|(sku)|$1$1|"'),
    protected({ by => 'proxy' }, '/both', 'both', 'SetOutputFilter SUBSTITUTE;DEFLATE', 'Substitute "s|(sku)|$1$1|"'),
    protected('/include', 'include', 'Options +Includes', 'SetOutputFilter INCLUDES'),
    protected('/headers', 'headers', 'Header set X-Frame-Options SAMEORIGIN', 'Header always set X-Now "%t"', 'Header add X-Rule one', 'ExpiresActive On', 'ExpiresDefault "access plus 1 hour"'));
my $c = $t->client;
my $plain = join '', map { "line $_ of something that compresses well\n" } 1 .. 400;

sub gunzip { my ($octets) = @_; IO::Uncompress::Gunzip::gunzip(\$octets, \my $out) or return undef; return $out }
sub row { my ($key) = @_; return ($t->records("idem_key = '$key'"))[0] // {} }

# One framing, and the connection goes on.
sub framing {
    my ($connection, $res, $name) = @_;
    my $length = () = $res->values('Content-Length');
    my $coding = () = $res->values('Transfer-Encoding');
    is($length + $coding, 1, "$name: one framing");
    is(length $res->body, $res->header('Content-Length'), "$name: a true length") if $length;
    is($c->request(POST => '/substitute', key => fresh_key(), body => '{}', on => $connection, keep => 1)->status, 200, "$name: the next request on the connection");
}

subtest 'C044 compression' => sub {
    for my $place (qw(/deflate /pdeflate)) {
        for my $how ('size known', 'in pieces') {
            my $key = fresh_key();
            $t->backend->behave(body => $plain, type => 'text/plain', $how eq 'in pieces' ? (pieces => 5, gap => 0.02) : ());
            my @gzip = (headers => [ 'Accept-Encoding' => 'gzip' ], keep => 1);
            ran($t, 1, "$place, $how", sub {
                my $on = $c->connect;
                my $first = $c->request(POST => $place, key => $key, body => '{}', @gzip, on => $on);
                is($first->header('Content-Encoding'), 'gzip', "$place: compressed for the first client");
                same_octets(gunzip($first->body), $plain, "$place: and valid");
                is(row($key)->{response_body}, '\\x' . unpack('H*', $plain), "$place: the plain octets are kept");
                my $again = $c->request(POST => $place, key => $key, body => '{}', @gzip, on => $on);
                is($again->header('Content-Encoding'), 'gzip', "$place: compressed again");
                ok($again->replayed, "$place: a replay");
                same_octets(gunzip($again->body), $plain, "$place: and valid");
                my $bare = $c->request(POST => $place, key => $key, body => '{}', keep => 1, on => $on);
                is($bare->header('Content-Encoding'), undef, "$place: plain for a client that asks for nothing");
                same_octets($bare->body, $plain, "$place: and right");
            });
        }
        my $key = fresh_key();
        my $first = $c->post($place, key => $key, body => '{}');
        same_octets($first->body, $plain, "$place: plain first");
        my $again = $c->post($place, key => $key, body => '{}', headers => [ 'Accept-Encoding' => 'gzip' ]);
        same_octets(gunzip($again->body), $plain, "$place: compressed on the replay");
    }
    $t->backend->behave;
};

subtest 'C045 framing' => sub {
    for my $place (qw(/deflate /pdeflate /substitute /both)) {
        for my $pieces (1, 4) {
            my $key = fresh_key();
            $t->backend->behave(body => '{"sku":"' . 'x' x 5000 . '"}', pieces => $pieces, gap => 0.02);
            my $on = $c->connect;
            my $first;
            for my $name ('first', 'replay') {
                my $res = $c->request(POST => $place, key => $key, body => '{}', headers => [ 'Accept-Encoding' => 'gzip' ], keep => 1, on => $on);
                is($res->status, 200, "$place, $pieces, $name");
                is($res->replayed ? 'replay' : 'first', $name, "$place, $pieces, $name: marked");
                framing($on, $res, "$place, $pieces, $name");
                $first //= $res;
                my $text = $res->header('Content-Encoding') ? gunzip($res->body) : $res->body;
                same_octets($text, $first->header('Content-Encoding') ? gunzip($first->body) : $first->body, "$place, $pieces, $name: content");
                like($text, qr/"skusku"/, "$place, $pieces, $name: substituted once") if $place =~ /sub|both/;
                unlike($text, qr/skuskusku/, "$place, $pieces, $name: and not twice");
            }
        }
    }
    $t->backend->behave;
};

subtest 'server-side includes run once' => sub {
    my $key = fresh_key();
    $t->backend->behave(type => 'text/html', body => 'a<!--#set var="x" value="&lt;!--#echo var=\'DATE_LOCAL\' --&gt;" --><!--#echo encoding="none" decoding="entity" var="x" -->z');
    my $first = $c->post('/include', key => $key, body => '{}');
    is($first->body, q(a<!--#echo var='DATE_LOCAL' -->z), 'the directive made text of it');
    is_replay($c->post('/include', key => $key, body => '{}'), $first, 'the text is not taken for a directive');
    $t->backend->behave;
};

subtest "the server's own fields are fresh and not kept" => sub {
    my $key = fresh_key();
    my $first = $c->post('/headers', key => $key, body => '{}');
    my $again = $c->post('/headers', key => $key, body => '{}');
    ok($again->replayed, 'a replay');
    for my $res ($first, $again) {
        is_deeply([ $res->values('X-Frame-Options') ], ['SAMEORIGIN'], 'Header set, once');
        is_deeply([ $res->values('X-Rule') ], ['one'], 'Header add, once');
        is(scalar(my @now = $res->values('X-Now')), 1, 'Header always, once');
        is(scalar(my @expires = $res->values('Expires')), 1, 'Expires, once');
    }
    isnt($again->header('X-Now'), $first->header('X-Now'), 'of now');
    unlike(pack('H*', substr row($key)->{response_headers}, 2), qr/SAMEORIGIN|X-Rule/i, 'not in the store');
};

$t->finish;
