# The request body: the application gets every octet, and what cannot be read whole is refused before anything runs.
use strict;
use warnings;
use Idem::Test;

my $t = Idem::Test->new(backends => [qw(cgi proxy fpm)], modules => ['lua'], config => sub {
    my ($t) = @_;
    mkdir $t->root . '/spool';
    give($t->root . '/spool');
    # A module that reads the body before ours, as token look-ups and form logins do.
    spew($t->root . '/eater.lua', "function eat(r)\n    r:requestbody()\n    return apache2.DECLINED\nend\n", 0644);
    return join '',
        protected('/cgi', 'cgi', 'IdempotencyKey Optional'),
        protected({ by => 'proxy' }, '/proxy', 'proxy', 'IdempotencyKey Optional'),
        protected({ by => 'fpm' }, '/php', 'php', 'IdempotencyKey Optional'),
        protected('/small', 'small', 'IdempotencyMaxBody 1000'),
        protected('/limited', 'limited', 'LimitRequestBody 500'),
        protected({ by => 'proxy' }, '/plimited', 'plimited', 'LimitRequestBody 500', 'IdempotencyMaxBody 1000'),
        protected('/memory', 'memory', 'IdempotencyBodyMemory 1K'),
        protected('/eaten', 'eaten', "LuaHookAccessChecker $t->{root}/eater.lua eat");
}, start => 0);
$t->httpd->{env} = { TMPDIR => $t->root . '/spool' };
$t->httpd->start;
my $c = $t->client;

sub pattern { my ($size) = @_; my $text = ''; $text .= sprintf "%06x\r\n", length($text) while length $text < $size; return substr $text, 0, $size }
sub pieces { my ($text) = @_; return [ unpack '(a7919)*', $text ] }

for my $place (qw(/cgi /proxy /php/x)) {
    for my $size (0, 1, 8191, 8192, 65_537, 5 * 1024 * 1024) {
        subtest "C094 $place, $size octets" => sub {
            my $body = pattern($size);
            my $sha = sha256($body);
            my %form = (length => [ body => $body ], chunked => [ chunks => pieces($body) ]);
            my $key = fresh_key();
            for my $form (qw(length chunked)) {
                my ($first, $second);
                ran($t, 1, $form, sub {
                    ($first, $second) = map { $c->post($place, key => "$key-$form", type => 'application/octet-stream', @{ $form{$form} }) } 1 .. 2;
                });
                is($first->status, 200, "$form: runs");
                is($first->json->{length}, $size, "$form: length");
                is($first->json->{sha256}, $sha, "$form: content");
                is($first->json->{announced}, $size, "$form: a true Content-Length") if $size || $form eq 'length';
                is_replay($second, $first, $form);
            }
            ran($t, 0, 'a chunked retry', sub {
                my $res = $c->post($place, key => "$key-length", type => 'application/octet-stream', @{ $form{chunked} });
                is($res->header('Idempotency-Replayed'), 'true', 'is a replay of the one with a length');
            });
            my $unkeyed = $c->post($place, type => 'application/octet-stream', body => $body);
            is($unkeyed->json->{sha256}, $sha, 'without a key');
        };
    }
}

sub too_large {
    my ($place, $name, @request) = @_;
    my $rows = $t->record_count;
    my $res;
    ran($t, 0, $name, sub { $res = $c->post($place, key => fresh_key(), @request) });
    problem($res, 'payload-too-large');
    is($t->record_count, $rows, "$name: no record");
}

subtest 'limits' => sub {
    for my $form ('length', 'chunked') {
        my $send = sub { my ($size) = @_; return $form eq 'length' ? (body => 'x' x $size) : (chunks => pieces('x' x $size)) };
        is($c->post('/small', key => fresh_key(), $send->(1000))->json->{length}, 1000, "$form: at the limit");
        too_large('/small', "$form: one over", $send->(1001));
        too_large('/small', "$form: far over", $send->(300_000));
        is($c->post('/limited', key => fresh_key(), $send->(500))->json->{length}, 500, "$form: at LimitRequestBody");
        too_large('/limited', "$form: over LimitRequestBody", $send->(501));
        too_large('/plimited', "$form: over LimitRequestBody of a proxy", $send->(501));
        too_large('/cgi', "$form: over the default of 8 MiB", $send->(8 * 1024 * 1024 + 1));
    }
    is($c->post('/cgi', key => fresh_key(), body => 'x' x (8 * 1024 * 1024))->json->{length}, 8 * 1024 * 1024, 'at the default of 8 MiB');
};

subtest 'a spooled body leaves no file' => sub {
    $t->backend->behave(hold => 1);
    my $effects = () = $t->backend->effects;
    my $running = $c->send(POST => '/memory', key => fresh_key(), body => 'p' x 100_000);
    ok(wait_for(sub { (() = $t->backend->effects) > $effects }), 'the application runs');
    is_deeply([ glob($t->root . '/spool/*') ], [], 'no file has a name while it runs');
    $t->backend->release;
    is($running->response->json->{length}, 100_000, 'the body is whole');
    $t->backend->behave;
    is_deeply([ glob($t->root . '/spool/*') ], [], 'nor afterwards');
};

# More of this in taken.t.
subtest 'a body that another module has read' => sub {
    my ($key, $body) = (fresh_key(), '{"amount":10}');
    ran($t, 1, 'eaten', sub {
        my ($first, $second) = map { $c->post('/eaten', key => $key, body => $body) } 1 .. 2;
        is($first->json->{sha256}, sha256($body), 'the application gets it whole');
        is_replay($second, $first, 'eaten');
    });
    problem($c->post('/eaten', key => $key, body => '{"amount":11}'), 'key-reused');
};

subtest 'a body that does not come to its end' => sub {
    my $rows = $t->record_count;
    ran($t, 0, 'cut short', sub {
        for my $text ($c->request_text(POST => '/cgi', key => fresh_key(), body => 'x' x 100), $c->request_text(POST => '/cgi', key => fresh_key(), chunks => [ 'x' x 100 ])) {
            my $cut = $c->connect;
            $cut->write(substr $text, 0, -20);
            shutdown $cut->{socket}, 1;
            my $res = $cut->response;
            ok(!$res || $res->status == 400, 'refused') or diag($res->status);
        }
    });
    is($t->record_count, $rows, 'no record');
};

$t->finish;
