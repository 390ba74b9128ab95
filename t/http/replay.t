# What a replay gives back: status, approved fields and the octets of the body, and what it must not.
use strict;
use warnings;
use Idem::Test;

my $t = Idem::Test->new(backends => [qw(cgi proxy fpm)], config => join '',
    protected('/cgi', 'cgi'), protected({ by => 'proxy' }, '/proxy', 'proxy'), protected({ by => 'fpm' }, '/php', 'php'),
    protected('/more', 'more', 'IdempotencySnapshotHeaders X-Order X-Total'),
    protected('/named', 'named', 'IdempotencyReplayedHeader X-Again'),
    protected('/unmarked', 'unmarked', 'IdempotencyReplayedHeader None'),
);
my $c = $t->client;

# The same request twice; the application runs once.
sub twice {
    my ($target, %arg) = @_;
    my @res;
    my $key = fresh_key();
    ran($t, 1, $target, sub { @res = map { $c->post($target, key => $key, body => '{}', %arg) } 1 .. 2 });
    return @res;
}

for my $place (qw(/cgi /proxy /php/x)) {
    subtest "statuses from $place" => sub {
        for my $status (200, 201, 202, 204, 301, 303, 404, 409, 410, 418) {
            my $location = $status =~ /^(?:20[12]|3)/ ? 'http://localhost/elsewhere' : undef;
            $t->backend->behave(status => $status, $location ? (header => "Location: $location") : ());
            my ($first, $second) = twice($place);
            is($first->status, $status, "$status as it was");
            is_replay($second, $first, "status $status");
            is($second->header('Location'), $location, "$status: Location");
            is($second->{framing}, $first->{framing}, "$status: framing");
            is($second->reason, $first->reason, "$status: reason") if $status != 418;
        }
        $t->backend->behave;
    };
}

subtest 'C038 fields that are kept' => sub {
    my %kept = (
        'Location' => '/orders/5', 'ETag' => '"v1"', 'Link' => '</orders?page=2>; rel="next"', 'Content-Language' => 'de-CH',
        'Content-Disposition' => 'attachment; filename="a b.json"', 'Last-Modified' => 'Mon, 01 Dec 2025 10:00:00 GMT',
        'Content-Location' => '/orders/5.json', 'Retry-After' => '7', 'Vary' => 'Accept-Language', 'Allow' => 'GET, POST',
        'Cache-Control' => 'private, max-age=5', 'Access-Control-Allow-Origin' => 'https://shop.example', 'X-Frame-Options' => 'DENY',
        'Content-Security-Policy' => "default-src 'none'", 'X-Content-Type-Options' => 'nosniff', 'Referrer-Policy' => 'no-referrer',
        'Deprecation' => '@1767225600', 'Sunset' => 'Thu, 31 Dec 2026 23:59:59 GMT', 'Repr-Digest' => 'sha-256=:AAAA:',
    );
    for my $place (qw(/cgi /proxy /php/x)) {
        $t->backend->behave(status => 201, header => [ map { "$_: $kept{$_}" } sort keys %kept ]);
        my ($first, $second) = twice($place);
        is($first->status, 201, "$place: created");
        for my $name (sort keys %kept) {
            is($second->header($name), $kept{$name}, "$place: $name");
            is_deeply([ $second->values($name) ], [ $first->values($name) ], "$place: $name as the first time");
        }
    }
    $t->backend->behave(header => [ 'Link: </a>; rel="prev"', 'Link: </b>; rel="next"' ]);
    for my $place (qw(/cgi /proxy)) {
        my ($first, $second) = twice($place);
        is($second->header('Link'), $first->header('Link'), "$place: two lines of a field");
    }
    $t->backend->behave;
};

subtest 'C040 media type' => sub {
    for my $type ('text/csv; charset=iso-8859-1', 'Application/Vnd.Api+JSON;CharSet="UTF-8" ; v=2', 'text/plain', 'image/png') {
        for my $place (qw(/cgi /proxy)) {
            $t->backend->behave(type => $type, body => 'x;y');
            my ($first, $second) = twice($place);
            is_replay($second, $first, "$place: $type");
            # httpd itself writes the type of a CGI in lower case; what it makes of it is what has to come back.
            is($second->header('Content-Type'), $place eq '/cgi' ? $type =~ s{^[^;]+}{\L$&}r : $type, "$place: character for character");
        }
    }
    $t->backend->behave(type => 'none', body => 'x');
    my ($first, $second) = twice('/proxy');
    is_deeply([ $second->values('Content-Type') ], [ $first->values('Content-Type') ], 'none where there was none');
    $t->backend->behave;
};

subtest 'C041 C084 octets' => sub {
    my $all = join '', map { chr } 0 .. 255;
    for my $place (qw(/cgi /proxy /php/x)) {
        $t->backend->behave(octets => 'all', type => 'application/octet-stream', header => [ "Content-Disposition: attachment; filename=\"caf\xe9\"" ]);
        my ($first, $second) = twice("$place?name=%00");
        same_octets($first->body, $all, "$place: the first");
        same_octets($second->body, $all, "$place: the replay");
        is($second->header('Content-Disposition'), "attachment; filename=\"caf\xe9\"", "$place: an octet over 7F in a field");
    }
    $t->backend->behave(body => '');
    for my $place (qw(/cgi /proxy /php/x)) {
        my ($first, $second) = twice($place);
        is_replay($second, $first, "$place: an empty body");
        is($second->header('Content-Length'), 0, "$place: of no octets");
    }
    $t->backend->behave;
};

subtest 'C047 a streamed reply' => sub {
    for my $place (qw(/cgi /proxy)) {
        my ($first, $second) = twice("$place?pieces=20&gap=0.03&size=50000");
        is(length $first->body, 50_000, "$place: whole");
        is_replay($second, $first, "$place: pieces");
    }
};

subtest 'C051 what is not kept' => sub {
    for my $place (qw(/cgi /proxy /php/x)) {
        $t->backend->behave(header => [ 'Set-Cookie: PHPSESSID=secret1', 'Set-Cookie: b=secret2', 'WWW-Authenticate: Bearer realm=secret3', 'X-CSRF: secret4',
            'Via: 1.1 secret5', 'X-Request-Id: secret6', 'traceparent: 00-secret7', 'Authentication-Info: secret8', 'Date: Tue, 01 Dec 2020 10:00:00 GMT' ]);
        my ($first, $second) = twice($place);
        is_deeply([ $first->values('Set-Cookie') ], [ 'PHPSESSID=secret1', 'b=secret2' ], "$place: the first client gets its cookies");
        is($first->header('X-CSRF'), 'secret4', "$place: and its token");
        my $fields = join "\n", map { "$_->[0]: $_->[1]" } @{ $second->{fields} };
        unlike($fields, qr/secret/, "$place: the replay has none of it");
        is(scalar(my @dates = $second->values('Date')), 1, "$place: one Date");
        unlike($second->header('Date'), qr/2020/, "$place: of now");
        is(scalar(my @servers = $second->values('Server')), 1, "$place: one Server");
        my ($row) = $t->records("operation_id = '" . $first->operation . "'");
        unlike(pack('H*', substr $row->{response_headers}, 2), qr/secret/, "$place: nor has the store");
    }
    $t->backend->behave(header => [ 'X-Order: 5', 'X-Total: 10', 'X-Else: 1' ]);
    my ($first, $second) = twice('/more');
    is($second->header('X-Order'), '5', 'IdempotencySnapshotHeaders');
    is($second->header('X-Total'), '10', 'all that are named');
    is($first->header('X-Else'), '1', 'another field');
    is($second->header('X-Else'), undef, 'is still left out');
    is($second->header('Cache-Control'), 'no-store', 'not to be cached');
    $t->backend->behave;
};

subtest 'C054 marker' => sub {
    my ($first, $second) = twice('/named');
    is($second->header('X-Again'), 'true', 'under the configured name');
    is($first->header('X-Again'), undef, 'not on the first');
    is($second->header('Idempotency-Replayed'), undef, 'and under no other');
    ($first, $second) = twice('/unmarked');
    is($second->header('Idempotency-Replayed'), undef, 'switched off');
    is($second->body, $first->body, 'still a replay');
    $t->backend->behave(header => [ 'Idempotency-Replayed: true', 'Idempotency-Operation: 018c0000-0000-7000-8000-000000000000', 'Idempotency-Contract: x' ]);
    for my $place (qw(/cgi /proxy)) {
        ($first, $second) = twice($place);
        is($first->header('Idempotency-Replayed'), undef, "$place: the application cannot claim it");
        is_replay($second, $first, $place);
        unlike($first->operation, qr/^018c0000/, "$place: nor an operation");
        is($first->header('Idempotency-Contract'), 'http.idempotency.v1', "$place: nor a contract");
    }
    $t->backend->behave;
};

subtest 'another kind of client' => sub {
    my $key = fresh_key();
    my $first = $c->post('/cgi?size=3000', key => $key, body => '{}');
    my $again = $c->post('/cgi?size=3000', key => $key, body => '{}', headers => [ Range => 'bytes=0-9', 'If-None-Match' => '*', 'If-Range' => '"x"' ]);
    is_replay($again, $first, 'Range and conditions change nothing');
    my $old = $c->connect;
    (my $text = $c->request_text(POST => '/cgi?size=3000', key => $key, body => '{}')) =~ s{HTTP/1\.1}{HTTP/1.0};
    $old->write($text);
    is_replay($old->response, $first, 'HTTP/1.0');
};

$t->finish;
