# What follows on the same connection: after every refusal and every replay the next request is answered rightly, or the
# connection is closed; Expect: 100-continue and pipelining; a stream of HTTP/2 that its client resets.
use strict;
use warnings;
use Idem::Curl;
use Idem::H2;
use Idem::Test;

my $t = Idem::Test->new(backends => ['cgi'], modules => ['http2'], mpm_config => <<'MPM', config => sub {
ServerLimit 1
StartServers 1
ThreadsPerChild 25
ThreadLimit 25
MaxRequestWorkers 25
MPM
    my ($t) = @_;
    return join '', "Protocols h2c http/1.1\n", protected('/cgi', 'cgi', 'IdempotencyRetention 1s', 'IdempotencyMaxBody 100K'), protected('/plain', undef),
        protected('/json', 'json', 'IdempotencyFingerprint json'), protected('/off', 'off', 'IdempotencySnapshotBody Off'),
        protected({ who => "IdempotencyTenant server\n    IdempotencyPrincipal env:NOBODY" }, '/nobody', 'nobody'),
        protected('/long', 'long', 'IdempotencyMaxBody 4M', 'IdempotencyMaxSnapshot 4M'),
        protected('/frozen', 'frozen', 'IdempotencyMode ReadOnly'), protected('/few', 'few', 'IdempotencyQuota live=1'), <<'CONF';
ScriptAliasMatch "^/shops/" "@CGI@"
<LocationMatch "^/shops/(?<SHOP>[^/]*)$">
    @AUTH@
    IdempotencyRoute "orders of %{MATCH_SHOP}"
    IdempotencyTenant server
    IdempotencyPrincipal user
</LocationMatch>
CONF
});
my $c = $t->client;
my $serial = 0;

# On one connection: this request, and then one of which nobody can mistake the answer.
sub then_another {
    my ($name, $slug, $target, %request) = @_;
    my $on = $c->connect;
    my $answer = $c->request(POST => $target, %request, on => $on, keep => 1);
    my $closing = !$answer || ($answer->header('Connection') // '') =~ /close/i;
    is($answer && ($answer->json->{type} // $answer->status), $slug =~ /^\d+$/ ? $slug : "tag:mod-idempotency,2026:$slug", "$name: refused") if defined $slug;
    if ($closing) {
        ok(wait_for(sub { $on->closed(0.2) }), "$name: the connection is closed, as the answer said");
        return $answer;
    }
    my $mark = 'mark-' . ++$serial;
    my $next = $c->request(POST => "/plain?body=$mark", body => '{}', on => $on, keep => 1);
    is($next && $next->status . ' ' . $next->body, "200 $mark", "$name: the next request is answered rightly");
    return $answer;
}

subtest 'after a refusal' => sub {
    my %small = (body => '{"a":1}');
    my %big = (body => '{"a":"' . 'x' x 90_000 . '"}');
    for my $form ([ 'a small body', %small ], [ 'a big one', %big ], [ 'chunks', chunks => [ unpack '(a1000)*', $big{body} ] ]) {
        my ($how, %body) = @$form;
        # refused by its head alone: nobody has read the body
        then_another("no key, $how", 'key-missing', '/cgi', %body);
        then_another("a bad key, $how", 'key-malformed', '/cgi', headers => [ 'Idempotency-Key' => '"' ], %body);
        then_another("no identity, $how", 'identity-missing', '/nobody', key => fresh_key(), %body);
        my $key = fresh_key();
        $c->post('/cgi', key => $key, body => '{}');
        then_another("another request's key, $how", 'key-reused', '/cgi', key => $key, %body);
        $t->backend->behave(status => 500);
        $c->post('/cgi', key => $key = fresh_key(), %body);
        $t->backend->behave;
        then_another("an unknown outcome, $how", 'outcome-unknown', '/cgi', key => $key, %body);
        $c->post('/off', key => $key, %body);
        then_another("an answer that is not kept, $how", 'response-not-stored', '/off', key => $key, %body);
    }
    for my $form ([ 'a small body', %small ], [ 'chunks', chunks => [ unpack '(a1000)*', $big{body} ] ]) {
        my ($how, %body) = @$form;
        then_another("a path that names nothing, $how", 'route-unresolved', '/shops/', key => fresh_key(), %body);
        then_another("a server that only replays, $how", 'writer-fenced', '/frozen', key => fresh_key(), %body);
    }
    ok(wait_for(sub { $c->post('/few', key => fresh_key(), %small)->status == 429 }, 20), 'a quota is used up');
    then_another("over the quota, $_->[0]", 'quota-exceeded', '/few', key => fresh_key(), @$_[1 .. $#$_]) for [ 'a small body', %small ], [ 'a big one', %big ];
    then_another('a body too large by its length', 'payload-too-large', '/cgi', key => fresh_key(), body => 'x' x 200_000);
    then_another('a body too large, in chunks', 'payload-too-large', '/cgi', key => fresh_key(), chunks => [ ('x' x 1000) x 200 ]);
    then_another('no JSON', 'payload-rejected', '/json', key => fresh_key(), body => '{"a":1,"a":2}' . ' ' x 80_000);
    my $key = fresh_key();
    $c->post('/cgi', key => $key, %small);
    ok(wait_for(sub { $t->record_count("idem_key = '$key' AND expires_at < now()") }), 'a record expires');
    then_another('an expired key', 'key-expired', '/cgi', key => $key, %small);
    $t->backend->behave(hold => 1);
    my $before = () = $t->backend->effects;
    my $running = $c->send(POST => '/cgi', key => $key = fresh_key(), %big);
    ok(wait_for(sub { (() = $t->backend->effects) > $before }), 'one is running');
    my $behave = $t->backend;
    $behave->behave;
    then_another('while another runs', 'in-progress', '/cgi', key => $key, %big);
    $behave->release;
    is($running->response->status, 200, 'which comes to its end');
};

$t->httpd->expect_log(qr/IDEM0102/);

subtest 'after a replay' => sub {
    for my $case ([ 'short' ], [ 'nothing', status => 204 ], [ 'empty', body => '' ], [ 'long', size => 1_000_000 ], [ 'in pieces', size => 50_000, pieces => 5 ],
        [ 'an error', status => 422 ], [ 'a redirect', status => 303, header => 'Location: http://localhost/x' ]) {
        my ($name, %behave) = @$case;
        my $key = fresh_key();
        my $on = $c->connect;
        $t->backend->behave(%behave);
        my $first = $c->request(POST => '/long', key => $key, body => 'x' x 300_000, on => $on, keep => 1);
        $t->backend->behave;
        for (1 .. 2) {
            my $again = $c->request(POST => '/long', key => $key, body => 'x' x 300_000, on => $on, keep => 1);
            is_replay($again, $first, "$name, on one connection") if $again;
            is(scalar(() = map { $again->values($_) } 'Content-Length', 'Transfer-Encoding'), $first->status == 204 ? 0 : 1, "$name: one framing");
        }
        is($c->request(POST => "/plain?body=" . ($name =~ tr/ /+/r), body => '{}', on => $on, keep => 1)->body, $name, "$name: the next request is answered rightly");
        my $last = $c->request(POST => '/long', key => $key, body => 'x' x 300_000, on => $on);
        is($last->header('Connection'), 'close', "$name: Connection: close is heeded");
        ok(wait_for(sub { $on->closed(0.2) }), "$name: and done");
    }
};

subtest 'pipelining' => sub {
    my ($key, $other) = (fresh_key(), fresh_key());
    my $on = $c->connect;
    ran($t, 3, 'five requests in one breath', sub {
        $on->write(join '', map { $c->request_text(POST => @$_, keep => 1) } [ '/cgi?body=one', key => $key, body => '{}' ], [ '/cgi?body=one', key => $key, body => '{}' ],
            [ '/cgi?body=two', key => $other, chunks => [ '{', '}' ] ], [ '/plain?body=three', body => '{}' ], [ '/cgi?body=one', body => '{}' ]);
        $on->{method} = 'POST';
        is($on->response->body, 'one', 'the first');
        my $again = $on->response;
        ok($again->replayed && $again->body eq 'one', 'its replay');
        is_deeply([ map { $on->response->body } 1, 2 ], [ 'two', 'three' ], 'and what follows, each in its place');
        problem($on->response, 'key-missing');
    });
};

subtest 'C100 Expect: 100-continue' => sub {
    my $body = 'x' x 2_000_000;
    my $key = fresh_key();
    my $ask = sub {
        my (%arg) = @_;
        my $on = $c->connect;
        my ($head) = $c->request_text(POST => '/long', key => $key, headers => [ Expect => '100-continue' ], body => $body, keep => 1, %arg) =~ /\A(.*?\r\n\r\n)/s;
        $on->write($head);
        $on->{method} = 'POST';
        ok(wait_for(sub { !$on->silent(0) }), 'the server says something before the body');
        my $interim = 0;
        if ($on->more(Time::HiRes::time() + 5) && $on->{buffer} =~ s/\AHTTP\/1\.1 100 [^\r]*\r\n(?:[^\r]+\r\n)*\r\n//) {
            $interim = 1;
            $on->write($arg{body} // $body);
        }
        my $answer = $on->response;
        return ($answer, $interim + @{ $answer->{interim} }, $on);
    };
    my ($first, $hundreds, $on) = $ask->();
    is("$hundreds, " . $first->status, '1, 200', 'the first: one 100, then the answer');
    is($first->json->{sha256}, sha256($body), 'the body is whole');
    is($c->request(POST => '/plain?body=next', body => '{}', on => $on, keep => 1)->body, 'next', 'and the connection goes on');
    my ($again, $again_hundreds, $again_on) = $ask->();
    is($again_hundreds, 1, 'a replay: one 100, as the body is a part of the question');
    is_replay($again, $first, 'after it');
    my ($refused, $refused_hundreds, $refused_on) = $ask->(key => undef);
    problem($refused, 'key-missing');
    is($refused_hundreds, 0, 'no 100 where the head says enough');
    ok(($refused->header('Connection') // '') =~ /close/ && wait_for(sub { $refused_on->closed(0.2) }), 'and the connection is closed: nobody knows whether the body comes');
    my ($large, $large_hundreds) = $ask->(body => 'x' x 5_000_000, key => fresh_key());
    problem($large, 'payload-too-large');
    is($large_hundreds, 0, 'nor for a body that is too large');
    $t->backend->behave(hold => 1);
    my $before = () = $t->backend->effects;
    $key = fresh_key();
    my $running = $c->send(POST => '/long', key => $key, body => $body);
    ok(wait_for(sub { (() = $t->backend->effects) > $before }), 'one is running');
    my ($meanwhile) = $ask->();
    problem($meanwhile, 'in-progress');
    $t->backend->release;
    is($running->response->status, 200, 'which comes to its end');
    $t->backend->behave;
};

subtest 'C072 a stream that is reset' => sub {
    for my $when ('while the application runs', 'while the answer is on its way') {
        my $key = fresh_key();
        my $curl = Idem::Curl->new(base => 'http://localhost:' . $t->httpd->port, user => 'a', options => ['http2-prior-knowledge']);
        $t->backend->behave($when =~ /runs/ ? (hold => 1) : (hold => 1, size => 900_000));
        ran($t, 1, $when, sub {
            my $before = () = $t->backend->effects;
            my $on = $c->connect;
            $on->write(h2_preface() . h2_request($t->httpd->port, 1, '/long', '{"a":1}', 'idempotency-key' => "\"$key\""));
            ok(wait_for(sub { (() = $t->backend->effects) > $before }), "$when: it runs");
            $t->backend->release if $when !~ /runs/;
            ok(wait_for(sub { $on->more(Time::HiRes::time() + 5); length $on->{buffer} > 20_000 }), "$when: octets come") if $when !~ /runs/;
            $on->write(h2_reset(1));
            $t->backend->release;
            $t->backend->behave;
            my $state;
            ok(wait_for(sub { $state = ($t->records("idem_key = '$key'"))[0]{status}; $state ne 'EXECUTING' }), "$when: the record comes to an end");
            like($state, qr/\A(?:SUCCEEDED|UNKNOWN)\z/, "$when: $state");
            is($state, 'SUCCEEDED', "$when: the answer was there already") if $when !~ /runs/;
            for (1 .. 2) {
                my $again = $curl->post('/long', key => $key, body => '{"a":1}');
                $state eq 'UNKNOWN' ? problem($again, 'outcome-unknown', operation => 1) : ok($again->replayed && $again->status == 200, "$when: a replay");
            }
        });
    }
    $t->backend->behave;
    $t->httpd->allow_log(qr/AH10159/);
    # what the module itself says of a response that nobody saw, and mod_http2 of a stream that is gone
    $t->httpd->allow_log(qr/IDEM0501/, qr/IDEM070[12]/, qr/AH0\d+.*(?:h2|stream)/, qr/AH0257[49]|AH01215/);
};

subtest 'while the store is away' => sub {
    $t->pg->stop('immediate');
    then_another("$_->[0], without the store", 'store-unavailable', '/cgi', key => fresh_key(), @{ $_->[1] })
        for [ 'a small body', [ body => '{}' ] ], [ 'a big one', [ body => 'x' x 90_000 ] ], [ 'chunks', [ chunks => [ ('x' x 1000) x 90 ] ] ];
    $t->httpd->allow_log(qr/\[idempotency:|\[dbd:/);
    $t->allow_pg_log(qr/./);
};

$t->finish;
