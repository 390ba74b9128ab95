# All the ways in which a response can come to no good end, or be hidden by what httpd shows in its place: the record
# says what can be known, the retry is told that, and nothing runs twice.
use strict;
use warnings;
use Idem::Curl;
use Idem::Test;

my $dead = free_port();
my $t = Idem::Test->new(backends => [qw(cgi proxy fpm fpm_tcp fcgid)], modules => [qw(proxy_balancer lbmethod_byrequests slotmem_shm substitute http2)],
    config => sub {
    my ($t) = @_;
    my $root = $t->root;
    $t->backend->script('sorry.cgi', 'print "Status: 200\nContent-Type: text/plain\n\nsorry\n";');
    $t->backend->script('nph-x.cgi', 'Idem::App::note($root, event => "effect", key => "nph"); print "HTTP/1.0 201 Made\r\nContent-Type: text/plain\r\n\r\nraw\n";');
    $t->backend->script('jump.cgi', 'Idem::App::note($root, event => "effect", key => "jump"); print "Location: /nowhere/thanks\n\n";');
    my $script = sub { "ScriptAlias \"$_[0]\" \"$root/app/cgi/$_[1]\"\n" };
    my $proxy = sub { my ($path, $more) = @_; "ProxyPass \"$path\" \"\@PROXY\@$path\" $more\n" };
    return join '', "Protocols h2c http/1.1\n", protected({ by => 'proxy' }, '/keep', 'keep'), "FcgidIPCDir $root/run/fcgid\nFcgidProcessTableFile $root/run/fcgid.shm\nFcgidMaxRequestLen 16777216\n",
        $script->('/sorry', 'sorry.cgi'),
        "<Proxy \"balancer://pair\">\n    BalancerMember \"http://127.0.0.1:$dead\" loadfactor=100\n    BalancerMember \"\@PROXY\@\"\n</Proxy>\n",
        "<Proxy \"balancer://gone\">\n    BalancerMember \"http://127.0.0.1:$dead\"\n    ProxySet forcerecovery=Off\n</Proxy>\nProxyPass \"/gone\" \"balancer://gone/gone\"\n", protected({ by => 'none' }, '/gone', 'gone'),
        "ProxyPass \"/pair\" \"balancer://pair/pair\"\n", protected({ by => 'none' }, '/pair', 'pair'),
        $proxy->('/ping', 'ping=1'), protected({ by => 'none' }, '/ping', 'ping'),
        $proxy->('/slow', 'timeout=1'), protected({ by => 'none' }, '/slow', 'slow'),
        protected({ by => 'proxy' }, '/quiet', 'quiet', 'LogLevel emerg'),
        (map { my ($by, $doc) = @$_; my $at = "/${by}_$doc->[0]";
            # mod_proxy_fcgi heeds ProxyErrorOverride only where no rewrite came before
            ($by eq 'fpm' ? "ProxyPassMatch \"^$at\" \"fcgi://127.0.0.1:$t->{backend}{fpm_port}$root/app/php/index.php\"\n" : ''),
            protected({ by => $by eq 'fpm' ? 'none' : 'proxy' }, $at, "$by.$doc->[0]", 'ProxyErrorOverride On', map { "ErrorDocument $_ $doc->[1]" } 404, 500, 503) }
            map { my $by = $_; map { [ $by, $_ ] } [ script => '/sorry' ], [ text => '"so sorry"' ], [ remote => 'http://localhost/elsewhere' ] } qw(proxy fpm)),
        protected('/cgi', 'cgi'), protected('/cgi_script', 'cgi.script', 'ErrorDocument 500 /sorry'), protected('/cgi_remote', 'cgi.remote', 'ErrorDocument 500 http://localhost/elsewhere'),
        $script->('/nph', 'nph-x.cgi'), protected({ by => 'none' }, '/nph', 'nph'),
        $script->('/jump', 'jump.cgi'), protected({ by => 'none' }, '/jump', 'jump'),
        (map { protected({ by => $_ }, "/sub_$_", "sub.$_", 'SetOutputFilter SUBSTITUTE', 'Substitute "s|a|b|"', 'SubstituteMaxLineLength 1k') } qw(cgi proxy fpm)),
        protected({ by => 'fcgid' }, '/fcgid', 'fcgid'), protected({ by => 'proxy' }, '/proxy', 'proxy'), protected({ by => 'fpm_tcp' }, '/tcp', 'tcp');
});
my $c = $t->client;
my $body = '{"amount":10}';
my $log = $t->httpd;

sub row { my ($key) = @_; return ($t->records("idem_key = '$key'"))[0] // {} }

# Once with what the application does, once again with an application that is well: the record's state and what the
# retry gets (a problem, "replay" or "runs"). Returns the first response.
sub ends {
    my ($name, $target, %case) = @_;
    my $key = fresh_key();
    my $first;
    $t->backend->behave(%{ $case{behave} || {} });
    ran($t, $case{ran} // 1, $name, sub {
        $case{during} ? $case{during}->($key, \$first) : ($first = $c->post($target, key => $key, body => $body));
        $t->backend->behave;
        is($first && $first->status, $case{status}, "$name: the first client is told") if defined $case{status};
        is(row($key)->{status} // 'no record', $case{state}, "$name: the record");
        next if $case{retry} eq 'runs';
        for (1 .. 2) {
            my $again = $c->post($target, key => $key, body => $body);
            $case{retry} eq 'replay' ? is_replay($again, $first, $name) : problem($again, $case{retry}, operation => 1);
        }
    }) ;
    return $first;
}

my %unknown = (state => 'UNKNOWN', retry => 'outcome-unknown');
my %final = (state => 'FAILED_FINAL', retry => 'replay');

subtest 'an error that httpd words in place of the backend' => sub {
    for my $by (qw(proxy fpm)) {
        for my $doc (qw(script text remote)) {
            my $at = "/${by}_$doc";
            my $shown = { script => 200, remote => 302 }->{$doc};
            # nobody sees what mod_proxy_fcgi had before the 302
            ends("$at, 404", $at, behave => { status => 404 }, status => $shown // 404, "$by$doc" eq "fpmremote" ? %unknown : %final);
            ends("$at, $_", $at, behave => { status => $_ }, status => $shown // $_, %unknown) for 500, 503;
        }
    }
    ends("a script that dies behind an ErrorDocument that says $_->[1]", $_->[0], behave => { exit => 1 }, status => $_->[1], %unknown)
        for [ '/cgi_script', 200 ], [ '/cgi_remote', 302 ];
    $log->expect_log(qr/End of script output before headers/);
    $log->allow_log(qr/AH01071/);
};

subtest 'nobody was there' => sub {
    $t->backend->stop_proxy;
    $t->backend->stop_fpm;
    for my $case ([ '/proxy', 'REJECTED' ], [ '/tcp/x', 'REJECTED' ], [ '/quiet', 'UNKNOWN', 'the line is not logged' ], [ '/ping', 'UNKNOWN', 'a worker with ping=' ]) {
        my ($at, $outcome, $why) = @$case;
        my $key = fresh_key();
        ran($t, 0, $at, sub { is($c->post($at, key => $key, body => $body)->status, 503, "$at: 503") });
        is(row($key)->{status}, $outcome eq 'UNKNOWN' ? 'UNKNOWN' : undef, "$at: " . ($why // 'the key is free'));
        problem($c->post($at, key => $key, body => $body), 'outcome-unknown') if $outcome eq 'UNKNOWN';
    }
    $t->backend->start_proxy;
    $t->backend->set_up_fpm;
    ends('a worker with ping= that is there', '/ping', status => 200, state => 'SUCCEEDED', retry => 'replay');
    # mod_cgid's daemon cannot be reached (a socket that is gone it would wait for, half a minute)
    my ($socket) = grep { -S } glob($t->root . '/run/cgid*');
    my $key = fresh_key();
    chmod 0, $socket or die "$socket: $!";
    ran($t, 0, 'no cgid daemon', sub { is($c->post('/cgi', key => $key, body => $body)->status, 503, 'no cgid daemon: 503') });
    is(row($key)->{status}, undef, 'no cgid daemon: the key is free');
    chmod 0700, $socket or die "$socket: $!";
    ran($t, 1, 'the daemon is back', sub { is($c->post('/cgi', key => $key, body => $body)->status, 200, 'and runs now') });
    $log->expect_log(qr/AH01114/, qr/AH01079/, qr/AH01257/);
    $log->allow_log(qr/AH00957|AH02454|AH00959|AH01258/);
};

subtest 'a balancer of HTTP servers goes on to the next where nobody was there' => sub {
    my $key = fresh_key();
    my ($first, $again);
    ran($t, 1, 'one dead, one alive', sub { ($first, $again) = map { $c->post('/pair', key => $key, body => $body) } 1 .. 2 });
    is($first->status, 200, 'runs');
    is_replay($again, $first, 'and is kept');
    ends('the second says 503', '/pair', behave => { status => 503 }, status => 503, %unknown);
    ends('the second breaks off', '/pair', behave => { die => 'before' }, status => 502, %unknown);
    $log->allow_log(qr/AH01102|AH00898/);
    # a member that was not there rests for a while: nobody is asked then
    $key = fresh_key();
    ran($t, 0, 'no member', sub { is($c->post('/gone', key => $key, body => $body)->status, 503, 'no member: 503') for 1 .. 3 });
    is(row($key)->{status}, undef, 'no member: the key stays free');
    $log->expect_log(qr/AH01170/);
};

subtest 'C065 a proxy that waits no longer' => sub {
    my $ended = () = $t->backend->ends;
    my $first = ends('the effect comes after the answer', '/slow', behave => { hold => 1 }, %unknown);
    like($first->status, qr/\A50[24]\z/, 'the first client is told so');
    $t->backend->release;
    ok(wait_for(sub { (() = $t->backend->ends) > $ended }), 'the application came to its end');
    $log->expect_log(qr/AH01102/);
    # nobody may say "not executed" meanwhile, but who knows that it is dead
    my $key = fresh_key();
    $t->backend->behave(hold => 1, late => 1);
    $first = $c->post('/slow', key => $key, body => $body);
    my $operation = $first->operation;
    my ($status, $said) = $t->ctl('resolve', $operation, '--not-executed', '--reason', 'no trace of it');
    is($status, 1, '"not executed" is refused while its owner lives') or diag($said);
    problem($c->post('/slow', key => $key, body => $body), 'outcome-unknown');
    ($status, $said) = $t->ctl('show', $operation, '--json');
    my ($downstream) = $said =~ /"downstream_key": *"([^"]+)"/;
    ($status, $said) = $t->ctl('resolve', $operation, '--not-executed', '--owner-is-dead', '--reason', 'it was switched off');
    is($status, 0, 'unless somebody has looked') or diag($said);
    $ended = () = $t->backend->ends;
    $t->backend->release;
    wait_for(sub { (() = $t->backend->ends) > $ended });
    $t->backend->behave;
    my $again = $c->post('/slow', key => $key, body => $body);
    is($again->status, 200, 'the retry runs');
    is($again->operation, $operation, 'as the same operation');
    is($again->json->{env}{HTTP_IDEMPOTENCY_DOWNSTREAM_KEY}, $downstream, 'with the same downstream key');
};

subtest 'FPM restarts' => sub {
    my $before = () = $t->backend->effects;
    ends('in the middle of a request', '/tcp/x', behave => { hold => 1 }, %unknown, during => sub {
        my ($key, $first) = @_;
        my $running = $c->send(POST => '/tcp/x', key => $key, body => $body);
        wait_for(sub { (() = $t->backend->effects) > $before }) or die 'does not run';
        $t->backend->stop_fpm;
        $$first = $running->response;
        $t->backend->set_up_fpm;
        cmp_ok($$first->status, '>=', 500, 'no success');
    });
    $log->expect_log(qr/AH01067|AH01075/);
    $log->allow_log(qr/AH10503/);
};

subtest 'C107 killed on the way' => sub {
    my %die = map { $_ => { die => $_, size => 1000, length => 1000 } } qw(before headers body);
    for my $case ([ '/cgi', qw(before headers body) ], [ '/proxy', qw(before headers body) ], [ '/tcp/x', qw(before body) ], [ '/fcgid/x', qw(before body) ]) {
        my ($at, @where) = @$case;
        for my $where (@where) {
            my $first = ends("$at, $where", $at, behave => $die{$where}, %unknown);
            ok(!$first || $first->status >= 500, "$at, $where: no success for the first client") or diag($first->status);
        }
    }
    $log->expect_log(qr/IDEM0701/, qr/AH01110/);
    $log->allow_log(qr/mod_fcgid|Premature end|AH10404|AH01106|AH01215|AH00898|AH01102|AH01068/);
    $t->backend->behave;
};

subtest 'a script that counts its length wrong' => sub {
    # httpd never believed what a script says of its length; more than announced is no sign of a broken answer.
    for my $at ('/cgi', '/tcp/x') {
        my $first = ends("$at, too short a length", $at, behave => { size => 1000, length => 900 }, status => 200, state => 'SUCCEEDED', retry => 'replay');
        is(length $first->body, 1000, "$at: all of it arrives");
    }
    $t->backend->behave(size => 1_200_000, length => 900);
    my $big = $c->post('/cgi', key => fresh_key(), body => $body);
    is(length $big->body, 1_200_000, 'nor where it is too big to be kept');
    $t->backend->behave;
};

subtest 'a script that talks past httpd' => sub {
    # now and then httpd itself closes such a connection before the answer is through, with the module or without
    my $first = ends('nph', '/nph', %unknown);
    like($first->body, qr/raw/, 'its answer went out') if $first;
    $log->expect_log(qr/IDEM0509/);
};

subtest 'a script that sends on to a place that is not there' => sub {
    # Its effect has happened: that the next handler refused does not undo it.
    ends('a local Location', '/jump', status => 404, %final);
};

subtest 'a filter that fails' => sub {
    for my $by (qw(cgi proxy fpm)) {
        my $at = "/sub_$by" . ($by eq 'fpm' ? '/x' : '');
        my $first = ends("$at, a line too long for mod_substitute", $at, behave => { body => 'a' x 5000 }, %unknown);
        ok($first && $first->status >= 500, "$at: an error, not an empty success") or diag($first ? $first->status : 'nothing');
    }
    # ... and one that fails on the way and lets the end pass: what came before it is not the answer
    my $first = ends('in the first of two pieces', '/sub_proxy', behave => { body => 'a' x 5000 . "\n" . 'rest ' x 1000, pieces => 2, gap => 0.2 }, %unknown);
    ok($first && $first->status >= 500, 'an error, not an empty success') or diag($first ? $first->status : 'nothing');
    $log->expect_log(qr/AH01328/);
};

subtest 'a kept connection to the application that breaks' => sub {
    # mod_proxy would close the client's connection without a word, that it sends the request again by itself
    my $on = $c->connect;
    is($c->request(POST => '/keep/x', key => fresh_key(), body => $body, on => $on, keep => 1)->status, 200, 'the first goes well');
    ends('the second', '/keep/x', behave => { die => 'before' }, status => 502, %unknown, during => sub {
        my ($key, $first) = @_;
        $$first = $c->request(POST => '/keep/x', key => $key, body => $body, on => $on, keep => 1);
    });
};

subtest 'the same over HTTP/2' => sub {
    my $h2 = Idem::Curl->new(base => 'http://localhost:' . $t->httpd->port, user => 'a', options => ['http2-prior-knowledge']);
    my %broken = (size => 1000, length => 1000);
    for my $case ([ '/cgi', %broken, die => 'before' ], [ '/cgi', %broken, die => 'body' ], [ '/proxy', %broken, die => 'before' ], [ '/proxy', %broken, die => 'body' ],
        [ '/tcp/x', %broken, die => 'before' ], [ '/tcp/x', %broken, die => 'body' ], [ '/sub_cgi', body => 'a' x 5000 ], [ '/sub_proxy', body => 'a' x 5000 ], [ '/fcgid/x', %broken, die => 'body' ]) {
        my ($at, %behave) = @$case;
        my $name = "$at, " . ($behave{die} // 'a filter that fails');
        my $first = ends($name, $at, behave => \%behave, %unknown, during => sub {
            my ($key, $answer) = @_;
            $$answer = $h2->post($at, key => $key, body => $body);
        });
        is($first && $first->{version}, '2', "$name: the protocol");
        ok($first && $first->status >= 500, "$name: an error for the first client");
    }
};

$t->finish;
