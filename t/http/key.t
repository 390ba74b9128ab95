# The Idempotency-Key field: which values are a key, where one is needed, and which requests have nothing to do with it.
use strict;
use warnings;
use Idem::Test;

my $t = Idem::Test->new(config => join '',
    protected('/lenient', 'lenient'),
    protected('/strict', 'strict', 'IdempotencyKeySyntax strict'),
    protected('/optional', 'optional', 'IdempotencyKey Optional'),
    protected('/auto', 'auto'),
    protected('/length', 'length', 'IdempotencyKeyLength 4 8'),
    protected('/pattern', 'pattern', 'IdempotencyKeyPattern "^[a-z]+$"'),
    protected('/other', 'other', 'IdempotencyKeyHeader X-Idempotency-Key'),
    protected('/put', 'put methods=PUT'),
);
my $c = $t->client;
my $body = '{"amount":10}';

# One request with these field lines.
sub with_lines {
    my ($place, @lines) = @_;
    return $c->post($place, body => $body, headers => [ map { ('Idempotency-Key' => $_) } @lines ]);
}

sub refused {
    my ($place, $name, @lines) = @_;
    my $rows = $t->record_count;
    ran($t, 0, $name, sub { problem(with_lines($place, @lines), 'key-malformed', secrets => [ grep { length } @lines ]) });
    is($t->record_count, $rows, "$name: no record");
}

subtest 'C020 the same header twice' => sub {
    my $key = fresh_key();
    refused('/lenient', 'two equal lines, quoted', qq("$key"), qq("$key"));
    refused('/lenient', 'two equal lines, bare', $key, $key);
    refused('/strict', 'two equal lines, strict', qq("$key"), qq("$key"));
    ran($t, 1, 'then one line', sub { is(with_lines('/lenient', qq("$key"))->status, 200, 'runs') });
};

subtest 'C023 a blank key is not an absent one' => sub {
    for my $place (qw(/lenient /strict /optional)) {
        refused($place, "$place empty", '');
        refused($place, "$place blanks", '   ');
        refused($place, "$place empty string", '""');
    }
};

subtest 'C019 quoted and bare' => sub {
    my $key = '8e03978e-40d5-43e8-bc93-6894a57f9324';
    is(with_lines('/strict', qq("$key"))->status, 200, 'strict takes the string');
    refused('/strict', 'strict, bare', $key);
    my ($quoted, $bare);
    ran($t, 1, 'lenient', sub {
        $quoted = with_lines('/lenient', qq("$key"));
        $bare = with_lines('/lenient', $key);
    });
    is_replay($bare, $quoted, 'one record for both');
    is($t->record_count("route = 'lenient' AND idem_key = '$key' AND ns = 'u:'"), 1, 'the key is stored without quotes');
    is_replay(with_lines('/lenient', qq("$key";v=1)), $quoted, 'parameters are ignored');
};

subtest 'lists and broken strings' => sub {
    refused('/lenient', 'a bare comma', 'a,b');
    refused('/lenient', 'a list', '"a", "b"');
    refused('/lenient', 'no closing quote', '"abc');
    refused('/lenient', 'text after the string', '"abc"x');
    is(with_lines('/lenient', '"a,b"')->status, 200, 'a comma inside quotes');
    is(with_lines('/lenient', 'order 42 v2')->status, 200, 'inner spaces of a bare key');
};

subtest 'length' => sub {
    is(with_lines('/lenient', 'k')->status, 200, 'lenient: 1 octet');
    is(with_lines('/lenient', 'k' x 255)->status, 200, 'lenient: 255');
    refused('/lenient', 'lenient: 256', 'k' x 256);
    refused('/strict', 'strict: 15', '"' . 's' x 15 . '"');
    is(with_lines('/strict', '"' . 's' x 16 . '"')->status, 200, 'strict: 16');
    is(with_lines('/strict', '"' . 's' x 255 . '"')->status, 200, 'strict: 255');
    refused('/strict', 'strict: 256', '"' . 's' x 256 . '"');
    refused('/length', 'as configured: 3', '"abc"');
    is(with_lines('/length', '"abcd"')->status, 200, 'as configured: 4');
    is(with_lines('/length', '"abcdefgh"')->status, 200, 'as configured: 8');
    refused('/length', 'as configured: 9', '"abcdefghi"');
    is(with_lines('/length', '"\\"\\"\\"\\"\\"\\"\\"\\""')->status, 200, 'the decoded key is what counts');
};

subtest 'pattern and name of the header' => sub {
    is(with_lines('/pattern', '"abc"')->status, 200, 'the pattern fits');
    refused('/pattern', 'the pattern does not fit', '"abc1"');
    my @other = (body => $body, headers => [ 'X-Idempotency-Key' => '"one"' ]);
    my $first = $c->post('/other', @other);
    is_replay($c->post('/other', @other), $first, 'another header');
    problem($c->post('/other', body => $body, key => 'two'), 'key-missing');
};

subtest 'no key' => sub {
    ran($t, 0, 'where one is required', sub { problem($c->post('/lenient', body => $body), 'key-missing') });
    for my $place (qw(/optional /auto)) {
        my $rows = $t->record_count;
        ran($t, 2, "$place, where none is", sub {
            for (1 .. 2) {
                my $res = $c->post($place, body => $body);
                is($res->status, 200, 'runs');
                is(scalar(grep { $_->[0] =~ /^Idempotency/i } @{ $res->{fields} }), 0, 'the module has no part in it');
            }
        });
        is($t->record_count, $rows, "$place: no record");
        my $first = $c->post($place, body => $body, key => "k$place");
        is_replay($c->post($place, body => $body, key => "k$place"), $first, "$place with a key");
    }
};

subtest 'C025 methods' => sub {
    my $key = fresh_key();
    my $rows = $t->record_count;
    for my $method (qw(GET HEAD OPTIONS PUT DELETE)) {
        ran($t, 2, $method, sub {
            for (1 .. 2) {
                my $res = $c->request($method, '/lenient', key => $key, $method eq 'PUT' ? (body => $body) : ());
                is($res->status, 200, "$method passes");
                is(scalar(grep { $_->[0] =~ /^Idempotency/i } @{ $res->{fields} }), 0, 'the module has no part in it');
            }
        });
    }
    is($t->record_count, $rows, 'no record');
    for my $method (qw(POST PATCH)) {
        my $own = "$key-$method";
        my $first = $c->request($method, '/lenient', key => $own, body => $body);
        is_replay($c->request($method, '/lenient', key => $own, body => $body), $first, $method);
    }
    is($c->post('/lenient', key => $key, body => $body)->status, 200, 'the key of the others is free');
    my $put = $c->request(PUT => '/put', key => $key, body => $body);
    is_replay($c->request(PUT => '/put', key => $key, body => $body), $put, 'methods=PUT');
    ran($t, 2, 'POST beside methods=PUT', sub { $c->post('/put', key => $key, body => $body) for 1 .. 2 });
};

$t->finish;
