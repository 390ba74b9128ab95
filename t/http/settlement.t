# What becomes of an operation when the answer is there: final, released, or unknown.
use strict;
use warnings;
use Idem::Test;

my $t = Idem::Test->new(backends => [qw(cgi proxy fpm)], modules => ['lua'], config => sub {
    my ($t) = @_;
    my $root = $t->root;
    mkdir "$root/$_" for qw(scripts off);
    give("$root/scripts", "$root/off");
    spew("$root/off/x.cgi", slurp($t->backend->cgi), 0755);
    # A handler inside httpd, told by the query what to do.
    spew("$root/handler.lua", <<'LUA', 0644);
function handle(r)
    local effects = io.open("@ROOT@/app/effects", "a")
    effects:write('{"event":"effect","path":"' .. r.uri .. '"}\n')
    effects:close()
    r.content_type = "text/plain"
    if r.args == "busy" then return 503 end
    if r.args == "refuse" then return 409 end
    if r.args == "short" then r.headers_out["Content-Length"] = "1000" end
    r:puts(string.rep("x", 500))
    return apache2.OK
end
LUA
    spew("$root/handler.lua", $t->expand(slurp("$root/handler.lua")), 0644);
    return join '',
        "LuaMapHandler ^/lua $root/handler.lua handle\n", protected({ by => 'none' }, '/lua', 'lua'),
        protected('/cgi', 'cgi'), protected({ by => 'proxy' }, '/proxy', 'proxy'), protected({ by => 'fpm' }, '/php', 'php'),
        protected({ by => 'proxy' }, '/override', 'override', 'ProxyErrorOverride On'),
        protected('/rules', 'rules', 'IdempotencyOutcome 5xx failed', 'IdempotencyOutcome 409 rejected', 'IdempotencyOutcome 200 unknown',
            'IdempotencyOutcome 503 rejected "expr=-n %{resp:Retry-After}"', 'IdempotencyOutcome 302 303 rejected'),
        protected('/outer', 'outer', 'IdempotencyOutcome 409 rejected', 'IdempotencyOutcome 410 rejected'),
        "<Location \"/outer/inner\">\n    IdempotencyOutcome 409 succeeded\n</Location>\n",
        "ScriptAlias \"/scripts\" \"$root/scripts\"\n", protected({ by => 'none' }, '/scripts', 'scripts'),
        "Alias \"/static\" \"$root/htdocs\"\n", protected({ by => 'none' }, '/static', 'static'),
        "Alias \"/off\" \"$root/off\"\n<Directory \"$root/off\">\n    AddHandler cgi-script .cgi\n</Directory>\n", protected({ by => 'none' }, '/off', 'off'),
        protected('/denied', 'denied', 'RewriteEngine On', 'RewriteRule "/no$" - [F]');
});
my $c = $t->client;
my $body = '{"amount":10}';
my $log = $t->httpd;

sub row { my ($key) = @_; return ($t->records("idem_key = '$key'"))[0] // {} }

# The application answers, then the same request again.
sub final {
    my ($place, $name, $state, %behave) = @_;
    my $key = fresh_key();
    $t->backend->behave(%behave);
    ran($t, 1, $name, sub {
        my $first = $c->post($place, key => $key, body => $body);
        is($first->status, $behave{status} // 200, "$name: the first client sees it");
        is_replay($c->post($place, key => $key, body => $body), $first, $name);
        is(row($key)->{status}, $state, "$name: $state");
    });
    $t->backend->behave;
}

sub released {
    my ($place, $name, %behave) = @_;
    my $key = fresh_key();
    $t->backend->behave(%behave);
    my $first = $c->post($place, key => $key, body => $body);
    is($first->status, $behave{status} // 200, "$name: the first client sees it");
    is_deeply(row($key), {}, "$name: no record is left");
    $t->backend->behave;
    ran($t, 1, "$name, again", sub {
        my $res = $c->post($place, key => $key, body => '{"corrected":true}');
        ok(!$res->replayed, "$name: the key is free");
    });
}

sub unknown {
    my ($place, $name, $status, %behave) = @_;
    my $key = fresh_key();
    $t->backend->behave(%behave);
    ran($t, 1, $name, sub {
        my $first = $c->post($place, key => $key, body => $body);
        is($first && $first->status, $status, "$name: the first client sees " . ($status // 'the end of the connection')) if !ref $status;
        my $row = row($key);
        is($row->{status}, 'UNKNOWN', "$name: UNKNOWN");
        $t->backend->behave;
        for (1 .. 2) {
            problem($c->post($place, key => $key, body => $body), 'outcome-unknown', operation => 1);
        }
        problem($c->post($place, key => $key, body => '{"amount":11}'), 'key-reused');
    });
}

for my $place (qw(/cgi /proxy /php/x)) {
    subtest "the rules without a word from the operator: $place" => sub {
        final($place, "$place $_", 'SUCCEEDED', status => $_) for 200, 201, 204;
        final($place, "$place 303", 'SUCCEEDED', status => 303, header => 'Location: http://localhost/x');
        final($place, "$place $_", 'FAILED_FINAL', status => $_) for 400, 402, 403, 404, 405, 409, 422;
        released($place, "$place $_", status => $_) for 401, 425, 429;
        unknown($place, "$place $_", $_, status => $_) for 408, 500, 503;
    };
    subtest "the application says the outcome: $place" => sub {
        final($place, "$place 500, failed", 'FAILED_FINAL', status => 500, outcome => 'failed');
        final($place, "$place 500, succeeded", 'SUCCEEDED', status => 500, outcome => 'Succeeded');
        released($place, "$place 200, rejected", outcome => 'rejected');
        unknown($place, "$place 200, unknown", 200, outcome => 'unknown');
        $t->backend->behave(outcome => 'succeeded');
        my $res = $c->post($place, key => fresh_key(), body => $body);
        is($res->header('Idempotency-Outcome'), undef, "$place: not for the client");
        $t->backend->behave;
    };
}

subtest 'C063 the effect, then the end' => sub {
    unknown('/cgi', 'exit before any header', 500, exit => 1);
    unknown('/cgi', 'killed before any header', 500, die => 'before');
    unknown('/cgi', 'half a header', 500, die => 'headers');
    unknown('/proxy', 'the application behind the proxy is gone', 502, die => 'before');
    unknown('/php/x', 'the PHP process is gone', 503, die => 'before');
    $log->expect_log(qr/End of script output before headers/, qr/Premature end of script headers/, qr/AH01102|AH00898/, qr/AH01067|AH01075|AH10503/);
};

subtest 'a reply that breaks off' => sub {
    my $key = fresh_key();
    $t->backend->behave(size => 1000, length => 1000, die => 'body');
    ran($t, 1, 'half of 1000 octets', sub {
        my $first = $c->post('/proxy', key => $key, body => $body);
        ok(!$first || $first->status >= 500 || !$first->{complete}, 'no whole success for the first client');
        is(row($key)->{status}, 'UNKNOWN', 'UNKNOWN');
        $t->backend->behave;
        problem($c->post('/proxy', key => $key, body => $body), 'outcome-unknown');
    });
    $t->backend->behave;
    $log->expect_log(qr/AH01110/);
};

subtest 'what a handler inside httpd returns' => sub {
    my $key = fresh_key();
    ran($t, 2, 'a refusal with nothing passed on', sub { is($c->post('/lua?refuse', key => $key, body => $body)->status, 409, 'refused') for 1 .. 2 });
    is_deeply(row($key), {}, 'no record is left');
    for my $case ([ 'busy', 503, 'a 503, with no word that nothing was reached' ], [ 'short', 502, 'fewer octets than announced' ]) {
        my ($query, $status, $name) = @$case;
        $key = fresh_key();
        ran($t, 1, $name, sub {
            is($c->post("/lua?$query", key => $key, body => $body)->status, $status, "$name: $status");
            is(row($key)->{status}, 'UNKNOWN', "$name: UNKNOWN");
            problem($c->post("/lua?$query", key => $key, body => $body), 'outcome-unknown');
        });
    }
    $log->expect_log(qr/the response is shorter/);
    my $first = $c->post('/lua', key => fresh_key(), body => $body);
    is($first->status, 200, 'a whole reply');
    is(length $first->body, 500, 'of all its octets');
};

subtest 'a proxy that words errors itself' => sub {
    unknown('/override', '500 by the application', 500, status => 500);
    unknown('/override', '503 by the application', 503, status => 503);
    my $key = fresh_key();
    $t->backend->behave(status => 404);
    ran($t, 1, '404 by the application', sub {
        is($c->post('/override', key => $key, body => $body)->status, 404, 'the first client sees it');
        is(row($key)->{status}, 'FAILED_FINAL', 'it ran: final');
    });
    $t->backend->behave;
};

subtest 'IdempotencyOutcome' => sub {
    final('/rules', '5xx failed', 'FAILED_FINAL', status => 500);
    released('/rules', '409 rejected', status => 409);
    unknown('/rules', '200 unknown', 200, status => 200);
    final('/rules', '503, first match', 'FAILED_FINAL', status => 503);
    released('/rules', '302, one of two', status => 302, header => 'Location: http://localhost/login');
    final('/rules', 'what the application says comes before', 'SUCCEEDED', status => 409, outcome => 'succeeded');
    released('/outer', 'outer 409', status => 409);
    final('/outer/inner', "the inner section's rule is first", 'SUCCEEDED', status => 409);
    released('/outer/inner', "the outer section's still holds", status => 410);
};

subtest 'C067 httpd refuses by itself' => sub {
    # Nothing ran, so nothing is kept, and the corrected request runs under the key.
    my $refused = sub {
        my ($target, $status, $name, $correct, $log_line) = @_;
        my $key = fresh_key();
        my $rows = $t->record_count;
        ran($t, 0, $name, sub { is($c->post($target, key => $key, body => $body)->status, $status, "$name: $status") });
        is($t->record_count, $rows, "$name: no record");
        $log->expect_log($log_line) if $log_line;
        $correct->();
        ran($t, 1, "$name, corrected", sub { is($c->post($target, key => $key, body => $body)->status, 200, "$name: runs now") });
    };
    $refused->('/scripts/new.cgi', 404, 'no such script', sub { spew($t->root . '/scripts/new.cgi', slurp($t->backend->cgi), 0755) }, qr/AH02811|AH01264|script not found/);
    for my $case ([ '/off/x.cgi', 403, qr/AH02809|Options ExecCGI is off/ ], [ '/static/none', 404, undef ], [ '/denied/no', 403, undef ]) {
        my ($target, $status, $line) = @$case;
        my $rows = $t->record_count;
        my $key = fresh_key();
        ran($t, 0, $target, sub { is($c->post($target, key => $key, body => $body)->status, $status, "$target: $status") for 1 .. 2 });
        is($t->record_count, $rows, "$target: no record");
        $log->expect_log($line) if $line;
    }
    spew($t->root . '/htdocs/page.html', 'x', 0644);
    my $rows = $t->record_count;
    is($c->request(PATCH => '/static/page.html', key => fresh_key(), body => $body)->status, 405, 'a method that a static file does not take: 405');
    is($t->record_count, $rows, 'no record');
};

subtest 'C066 nobody was there' => sub {
    for my $case ([ '/proxy', 'stop_proxy', 'start_proxy', qr/AH01114/ ], [ '/php/x', 'stop_fpm', 'set_up_fpm', qr/AH01079/ ]) {
        my ($place, $stop, $start, $line) = @$case;
        my $key = fresh_key();
        my $rows = $t->record_count;
        $t->backend->$stop;
        ran($t, 0, "$place closed", sub { is($c->post($place, key => $key, body => $body)->status, 503, "$place: 503") });
        is($t->record_count, $rows, "$place: no record");
        $t->backend->$start;
        ran($t, 1, "$place open", sub {
            my $first;
            # A worker that failed rests for its retry time.
            ok(wait_for(sub { $first = $c->post($place, key => $key, body => $body); $first->status != 503 }, 70), "$place: it is there again");
            is($first->status, 200, "$place: runs now");
            is_replay($c->post($place, key => $key, body => $body), $first, $place);
        });
        $log->expect_log($line);
        $log->allow_log(qr/AH00957|AH00959|AH00940|AH02454/);
    }
};

subtest 'C071 the client leaves' => sub {
    for my $place (qw(/cgi /proxy /php/x)) {
        my $key = fresh_key();
        $t->backend->behave(hold => 1, size => 100_000);
        ran($t, 1, $place, sub {
            my $before = () = $t->backend->effects;
            my $ended = () = $t->backend->ends;
            my $running = $c->send(POST => $place, key => $key, body => $body);
            ok(wait_for(sub { (() = $t->backend->effects) > $before }), "$place: it runs");
            $running->abort;
            $t->backend->release;
            ok(wait_for(sub { (() = $t->backend->ends) > $ended }), "$place: it comes to its end");
            ok(wait_for(sub { (row($key)->{status} // '') eq 'SUCCEEDED' }), "$place: the result is kept");
            my $res = $c->post($place, key => $key, body => $body);
            is($res->status, 200, "$place: the retry");
            ok($res->replayed, "$place: is a replay");
            is(length $res->body, 100_000, "$place: whole");
        });
        $t->backend->behave;
    }
};

$t->finish;
