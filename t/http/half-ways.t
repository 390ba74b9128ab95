# What leaves the plain way of a request and its answer: upgraded connections, event streams over HTTP/2, answers that end
# within their head, status lines that say too little, streams that their client resets at any moment.
use strict;
use warnings;
use File::Copy ();
use Idem::Curl;
use Idem::H2;
use Idem::Raw;
use Idem::Test;
use Time::HiRes ();

my (@raw, $t);
$t = Idem::Test->new(backends => [qw(cgi proxy fcgid)], modules => [qw(http2 proxy_wstunnel proxy_fcgi)], config => sub {
    my ($t) = @_;
    my $root = $t->backend->{root};
    File::Copy::copy(source_dir() . '/t/lib/Idem/Raw.pm', "$root/Idem/Raw.pm") or die "copy: $!\n";
    spew("$root/raw", '', 0644);
    @raw = ([ Idem::Raw::serve(\&Idem::Raw::http, $root) ], [ Idem::Raw::serve(\&Idem::Raw::fastcgi, $root) ]);
    for my $server (@raw) {
        at_end(sub { end_process($server->[0], 'TERM', 5) });
    }
    # mod_fcgid hands its script the listening socket as standard input
    $t->backend->script('half.fcgi', 'use Idem::Raw; $SIG{TERM} = "DEFAULT"; while (accept my $socket, STDIN) { eval { Idem::Raw::fastcgi($socket, $root) }; close $socket }');
    $t->backend->script('hundred.cgi', 'Idem::App::note($root, event => "effect", key => "100"); 1 while read STDIN, my $b, 65536; print "Status: 100\n\n", "x" x ($ENV{QUERY_STRING} || 0);');
    $t->backend->script('terse.cgi', 'Idem::App::note($root, event => "effect", key => "terse"); 1 while read STDIN, my $b, 65536; print "Status: 201\nContent-Type: text/plain\n\nok\n";');
    my $http = "127.0.0.1:$raw[0][1]";
    my $script = sub { "ScriptAlias \"$_[0]\" \"$root/cgi/$_[1]\"\n" . protected({ by => 'none' }, @_[ 0, 2 ]) };
    return join '', "Protocols h2c http/1.1\nFcgidIPCDir $t->{root}/run/fcgid\nFcgidProcessTableFile $t->{root}/run/fcgid.shm\nProxyWebsocketFallbackToProxyHttp Off\n",
        "ProxyPass \"/ws\" \"http://$http/\" upgrade=websocket\n", protected({ by => 'none' }, '/ws', 'ws'),
        "ProxyPass \"/tunnel\" \"ws://$http/\"\n", protected({ by => 'none' }, '/tunnel', 'tunnel'),
        "ProxyPass \"/raw\" \"http://$http/\"\n", protected({ by => 'none' }, '/raw', 'raw'),
        "ProxyPass \"/half_fpm\" \"fcgi://127.0.0.1:$raw[1][1]/\"\n", protected({ by => 'none' }, '/half_fpm', 'half.fpm'),
        $script->('/half_fcgid', 'half.fcgi', 'half.fcgid') =~ s/(?=\n<\/Location>)/\n    SetHandler fcgid-script\n    Options +ExecCGI/r,
        $script->('/hundred', 'hundred.cgi', 'hundred'), $script->('/terse', 'terse.cgi', 'terse'),
        protected({ by => 'fcgid' }, '/fcgid', 'fcgid'), protected('/cgi', 'cgi'), protected({ by => 'proxy' }, '/proxy', 'proxy');
});
my $c = $t->client;
my $body = '{"amount":10}';

sub row { my ($key) = @_; return ($t->records("idem_key = '$key'"))[0] // {} }
sub say_raw { my ($text) = @_; spew($t->backend->{root} . '/raw', $text, 0644) }
sub effects { return scalar(() = $t->backend->effects) }

# A connection that is upgraded, the head of the answer read.
sub upgraded {
    my ($method, $target, $key) = @_;
    my $on = $c->connect;
    $on->write($c->request_text($method => $target, keep => 1, key => $key, headers => [ Upgrade => 'websocket', 'Sec-WebSocket-Key' => 'AAAAAAAAAAAAAAAAAAAAAA==', 'Sec-WebSocket-Version' => 13 ])
        =~ s/^Connection: [^\r]*/Connection: Upgrade/mr);
    wait_for(sub { $on->more(Time::HiRes::time() + 1) if !$on->silent(0); $on->{buffer} =~ /\r\n\r\n/ }, 10);
    return $on;
}

sub talks {
    my ($name, $on) = @_;
    like($on->{buffer} =~ s/.*?\r\n\r\n//sr, qr/\A\z/, "$name: nothing but the head");
    like($on->{buffer}, qr{\AHTTP/1\.1 101 }, "$name: switched");
    $on->write("ping\n");
    ok(wait_for(sub { $on->more(Time::HiRes::time() + 1) if !$on->silent(0); $on->{buffer} =~ /ping\nping\n/ }, 10), "$name: octets go both ways");
}

subtest 'an upgraded connection' => sub {
    for my $at ('/ws', '/tunnel') {
        my $key = fresh_key();
        ran($t, 1, $at, sub {
            my $on = upgraded(POST => $at, $key);
            talks($at, $on);
            is(row($key)->{status}, 'EXECUTING', "$at: at work while it is open");
            problem($c->request(POST => $at, key => $key), 'in-progress', operation => 1);
            $on->close;
            ok(wait_for(sub { row($key)->{status} ne 'EXECUTING' }), "$at: settled when it has ended");
            is(row($key)->{status}, 'UNKNOWN', "$at: what was said nobody knows");
            problem($c->request(POST => $at, key => $key), 'outcome-unknown', operation => 1) for 1 .. 2;
        });
    }
    # WebSocket begins with a GET, which no route takes.
    my $key = fresh_key();
    ran($t, 2, 'a method that the route does not take', sub { talks("GET $_", upgraded(GET => $_, $key)) for '/ws', '/tunnel' });
    is($t->record_count("idem_key = '$key'"), 0, 'no record');
    # A server that does not want to switch answers as ever.
    say_raw("HTTP/1.1 201 Made\r\nContent-Type: text/plain\r\nContent-Length: 3\r\nConnection: close\r\n\r\nok\n");
    my ($one, $two);
    ran($t, 1, 'not taken', sub { ($one, $two) = map { $c->post('/ws', key => $key, body => $body, headers => [ Upgrade => 'websocket' ]) } 1 .. 2 });
    is($one->status, 201, 'an answer');
    is_replay($two, $one, 'an upgrade that was not taken');
    say_raw('');
    $t->httpd->expect_log(qr/IDEM0509/);
};

subtest 'C107 an answer that ends within its head, or its body' => sub {
    my %raw = (before => 'CUT', headers => "Status: 201\r\nContent-TyCUT", body => "Status: 201\r\nContent-Length: 1000\r\nContent-Type: text/plain\r\n\r\n" . 'x' x 400 . 'CUT');
    for my $at ('/half_fpm', '/half_fcgid') {
        for my $where (sort keys %raw) {
            my $key = fresh_key();
            say_raw($raw{$where});
            ran($t, 1, "$at, $where", sub {
                my $first = $c->post($at, key => $key, body => $body);
                say_raw('');
                ok(!$first || $first->status >= 500, "$at, $where: no success for the first client") or diag($first->status);
                is(row($key)->{status}, 'UNKNOWN', "$at, $where: the record");
                problem($c->post($at, key => $key, body => $body), 'outcome-unknown', operation => 1) for 1 .. 2;
            });
        }
        ran($t, 1, "$at, whole", sub { my $key = fresh_key(); my ($one, $two) = map { $c->post($at, key => $key, body => $body) } 1 .. 2; is_replay($two, $one, "$at, whole") });
    }
    $t->httpd->allow_log(qr/mod_fcgid|End of script output before headers: half|AH0106[78]|AH01070|AH01075|AH01079|Premature end|IDEM070[12]|\[proxy_fcgi:|\[fcgid:|Unable to flush stdout/);
};

subtest 'a body over FcgidMaxRequestLen' => sub {
    my $key = fresh_key();
    my @request = ('/fcgid/x', key => $key, body => 'x' x 200_000);
    ran($t, 0, 'too much for mod_fcgid', sub {
        is($c->post(@request)->status, 500, '500, before the application sees it');
        is(row($key)->{status}, 'UNKNOWN', 'a 500, and nobody is sure');
        problem($c->post(@request), 'outcome-unknown', operation => 1);
    });
    $t->httpd->expect_log(qr/mod_fcgid: HTTP request length/);
};

subtest 'a status of 1xx is no answer' => sub {
    for my $size (0, 10, 1_200_000) {
        my $key = fresh_key();
        ran($t, 1, "$size octets", sub {
            is($c->post("/hundred?$size", key => $key, body => $body)->status, 502, "$size octets: the client is told");
            is(row($key)->{status}, 'UNKNOWN', "$size octets: the record");
            problem($c->post("/hundred?$size", key => $key, body => $body), 'outcome-unknown', operation => 1);
        });
    }
    $t->httpd->expect_log(qr/IDEM0703: the backend's only status is 100/);
};

subtest 'a status line without a reason, or with one of its own' => sub {
    for my $case ([ '/terse', 'Created' ], [ '/raw', '', '201 ' ], [ '/raw', '', 201 ], [ '/raw', 'Made by hand', '201 Made by hand' ], [ '/raw', '', '299 ' ]) {
        my ($at, $reason, $line) = @$case;
        my $name = "$at, " . ($line // 'Status: 201');
        my $key = fresh_key();
        say_raw("HTTP/1.1 $line\r\nContent-Type: text/plain\r\nContent-Length: 3\r\nConnection: close\r\n\r\nok\n") if $line;
        my ($one, $two);
        ran($t, 1, $name, sub { ($one, $two) = map { $c->post($at, key => $key, body => $body) } 1 .. 2 });
        is($one->{reason}, $reason, "$name: as httpd has it of the backend");
        is($two->{reason}, $one->{reason}, "$name: the same to the retry");
        is_replay($two, $one, $name);
    }
    say_raw('');
};

subtest 'C109 events over HTTP/2' => sub {
    for my $at ('/cgi', '/proxy') {
        my $key = fresh_key();
        $t->backend->behave(type => 'text/event-stream', body => "data: one\n\ndata: two\n\ndata: end\n\n", pieces => 3, stop => 2);
        ran($t, 1, $at, sub {
            my $on = $c->connect;
            my $comes = sub { my ($what) = @_; return wait_for(sub { $on->more(Time::HiRes::time() + 1) if !$on->silent(0); h2_data($on->{buffer}) =~ $what }, 10) };
            $on->write(h2_preface() . h2_request($t->httpd->port, 1, $at, $body, 'idempotency-key' => "\"$key\""));
            ok($comes->(qr/data: one/), "$at: the first event comes while the stream is held");
            is(row($key)->{status}, 'SUCCEEDED', "$at: settled, while the stream goes on");
            is(row($key)->{response_body}, undef, "$at: without a body");
            problem($c->post($at, key => $key, body => $body), 'response-not-stored', operation => 1);
            $t->backend->release;
            ok($comes->(qr/data: end/), "$at: the stream comes to its end");
        });
        $t->backend->behave;
    }
};

# The other moments, and an answer that is on its way, are in connections.t.
subtest 'C072 a stream that is reset' => sub {
    my $h2 = Idem::Curl->new(base => 'http://localhost:' . $t->httpd->port, user => 'a', options => ['http2-prior-knowledge']);
    for my $at ('/cgi', '/proxy') {
        my $key = fresh_key();
        ran($t, 1, "$at, in the request's body", sub {
            my $on = $c->connect;
            $on->write(h2_preface() . h2_head($t->httpd->port, 1, $at, 'idempotency-key' => "\"$key\"", 'content-length' => 13) . frame(0, 0, 1, '{"amou'));
            # the stream's window was looked at: its head has been taken
            $on->write(frame(6, 0, 0, 'pingpong'));
            ok(wait_for(sub { $on->more(Time::HiRes::time() + 1) if !$on->silent(0); $on->{buffer} =~ /pingpong/ }, 10), "$at: the server reads");
            $on->write(h2_reset(1));
            my $again = $h2->post($at, key => $key, body => $body);
            is($again->status, 200, "$at, in the request's body: nothing ran, so the retry does");
        });
        $key = fresh_key();
        my $before = effects();
        my $on = $c->connect;
        $on->write(h2_preface() . h2_request($t->httpd->port, 1, $at, $body, 'idempotency-key' => "\"$key\"") . h2_reset(1));
        # whether it began at all is mod_http2's to say; what it did stays
        my $last;
        ok(wait_for(sub { $last = $h2->post($at, key => $key, body => $body); $last->status == 200 || ($last->json->{type} // '') =~ /outcome-unknown/ }, 20), "$at, at once: the retry has an answer");
        is(effects() - $before, 1, "$at, at once: one effect") if $last->status == 200;
        cmp_ok(effects() - $before, '<=', 1, "$at, at once: never two");
    }
    # while what a backend has said is passed on as it comes
    my $key = fresh_key();
    $t->backend->behave(size => 3_000_000, pieces => 3, stop => 3);
    ran($t, 1, 'in a long answer', sub {
        my $on = $c->connect;
        $on->write(h2_preface() . frame(8, 0, 0, pack 'N', 1 << 24) . h2_request($t->httpd->port, 1, '/proxy', $body, 'idempotency-key' => "\"$key\"") . frame(8, 0, 1, pack 'N', 1 << 24));
        ok(wait_for(sub { $on->more(Time::HiRes::time() + 1) if !$on->silent(0); length $on->{buffer} > 500_000 }, 20), 'octets come');
        $on->write(h2_reset(1));
        $t->backend->release;
        $t->backend->behave;
        is(row($key)->{status}, 'SUCCEEDED', 'settled before the first octet left');
        problem($h2->post('/proxy', key => $key, body => $body), 'response-not-stored', operation => 1);
    });
    $t->httpd->allow_log(qr/IDEM0501/, qr/IDEM070[12]/, qr/AH0\d+.*(?:h2|stream)/, qr/AH0257[49]|AH01215|AH10159/);
};

$t->finish;
