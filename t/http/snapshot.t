# How much of a response is kept: up to the limit all of it, over the limit the fact alone; never a part.
use strict;
use warnings;
use Idem::Test;

my $t = Idem::Test->new(backends => [qw(cgi proxy)], config => join '',
    protected('/cgi', 'cgi'), protected({ by => 'proxy' }, '/proxy', 'proxy'),
    protected('/small', 'small', 'IdempotencyMaxSnapshot 10000'),
    protected({ by => 'proxy' }, '/psmall', 'psmall', 'IdempotencyMaxSnapshot 10000'),
    protected('/bodyless', 'bodyless', 'IdempotencySnapshotBody Off'));
my $c = $t->client;

sub row { my ($key) = @_; return ($t->records("idem_key = '$key'"))[0] // {} }

# A response whose body is not kept: the first client has it whole, a retry is told so.
sub not_stored {
    my ($target, $size, %behave) = @_;
    my $key = fresh_key();
    $t->backend->behave(%behave);
    ran($t, 1, $target, sub {
        my $first = $c->post($target, key => $key, body => '{}');
        is($first->status, $behave{status} // 200, "$target: the first client gets the status");
        ok($first->{complete}, "$target: and the whole");
        same_octets($first->body, Idem::App::pattern($size), "$target: octet for octet") if defined $size;
        my $row = row($key);
        is($row->{status}, 'SUCCEEDED', "$target: the record is final");
        is($row->{response_body}, undef, "$target: without a body");
        for (1 .. 2) {
            my $again = $c->post($target, key => $key, body => '{}');
            problem($again, 'response-not-stored', operation => 1);
            is($again->json->{original_status}, $first->status, "$target: the first status is told");
            like($again->json->{outcome}, qr/\Asucceeded\z/i, "$target: the outcome is told");
            is($again->header('Location'), $first->header('Location'), "$target: Location");
            is($again->operation, $first->operation, "$target: the operation");
        }
        problem($c->post($target, key => $key, body => '{"other":1}'), 'key-reused');
    });
    $t->backend->behave;
}

require Idem::App;

subtest 'C050 at the limit' => sub {
    for my $place (qw(/small /psmall)) {
        for my $size (9_999, 10_000) {
            my $key = fresh_key();
            ran($t, 1, "$place $size", sub {
                my $first = $c->post("$place?size=$size", key => $key, body => '{}');
                same_octets($first->body, Idem::App::pattern($size), "$place $size: the first");
                my $second = $c->post("$place?size=$size", key => $key, body => '{}');
                is_replay($second, $first, "$place $size");
                is($second->header('Content-Length'), $size, "$place $size: Content-Length");
            });
        }
        not_stored("$place?size=10001", 10_001, status => 201, header => 'Location: http://localhost/orders/5');
        not_stored("$place?size=10001&pieces=9&gap=0.01", 10_001);
    }
};

subtest 'C049 far over the default of 1 MiB' => sub {
    my $big = 3 * 1024 * 1024;
    not_stored("$_?size=$big", $big) for qw(/cgi /proxy);
    my $key = fresh_key();
    my $limit = 1024 * 1024;
    my $first = $c->post("/cgi?size=$limit", key => $key, body => '{}');
    is_replay($c->post("/cgi?size=$limit", key => $key, body => '{}'), $first, '1 MiB is kept');
};

subtest 'IdempotencySnapshotBody Off' => sub {
    not_stored('/bodyless?size=100', 100, status => 201, header => 'Location: http://localhost/orders/6');
};

subtest 'an event stream is passed on as it comes' => sub {
    for my $place (qw(/cgi /proxy)) {
        not_stored("$place?size=300&type=text/event-stream", 300);
        my $key = fresh_key();
        $t->backend->behave(type => 'text/event-stream', size => 300, pieces => 3, stop => 2);
        my $stream = $c->send(POST => $place, key => $key, body => '{}');
        ok(!$stream->silent(10), "$place: the first piece comes while the second is held");
        is(row($key)->{status}, 'SUCCEEDED', "$place: settled before the first octet");
        problem($c->post($place, key => $key, body => '{}'), 'response-not-stored');
        $t->backend->release;
        same_octets($stream->response->body, Idem::App::pattern(300), "$place: whole");
        $t->backend->behave;
    }
};

subtest 'failures over the limit' => sub {
    my $key = fresh_key();
    $t->backend->behave(status => 404, size => 20_000);
    my $first = $c->post('/small', key => $key, body => '{}');
    is(length $first->body, 20_000, 'the first client gets it whole');
    my $again = $c->post('/small', key => $key, body => '{}');
    problem($again, 'response-not-stored');
    is($again->json->{original_status}, 404, 'with its status');
    like($again->json->{outcome}, qr/\Afailed/i, 'and outcome');
    $key = fresh_key();
    $t->backend->behave(status => 500, size => 20_000);
    is(length $c->post('/small', key => $key, body => '{}')->body, 20_000, 'a 500 over the limit');
    problem($c->post('/small', key => $key, body => '{}'), 'outcome-unknown');
    $t->backend->behave;
};

$t->finish;
