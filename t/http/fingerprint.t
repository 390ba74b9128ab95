# CONTRACT section 3 over HTTP: which two requests are the same, mode by mode, and across a change of configuration.
use strict;
use warnings;
use Idem::Test;

my %contract = (
    1 => '{"x-revision": "1", "type": "object", "required": ["amount"], "properties": {"amount": {"type": "integer", "minimum": 1},
           "note": {"type": "string", "maxLength": 10}}}',
    2 => '{"x-revision": "2", "type": "object", "required": ["amount"], "properties": {"amount": {"type": "integer", "minimum": 1}}}',
);
my %mode = (raw => [], json => ['IdempotencyFingerprint json'], jcs => ['IdempotencyFingerprint jcs'],
    form => ['IdempotencyFingerprint form'], multipart => ['IdempotencyFingerprint multipart'],
    noquery => ['IdempotencyFingerprintQuery None'], named => ['IdempotencyFingerprintQuery b a']);

sub config {
    my (@contract_lines) = @_;
    return sub {
        my ($t) = @_;
        spew($t->root . "/contract-$_.json", $contract{$_}, 0644) for keys %contract;
        return join '', (map { protected("/$_", $_, @{ $mode{$_} }) } sort keys %mode),
            protected('/contract', 'contract', map { s/\@ROOT\@/$t->{root}/gr } @contract_lines);
    };
}
my $t = Idem::Test->new(config => config('IdempotencyPayloadContract @ROOT@/contract-1.json'));
my $c = $t->client;

# Two requests with one key: 'same' is a replay, 'other' is 422; naming what differs.
sub pair {
    my ($name, $place, $verdict, $first, $second, $names) = @_;
    subtest $name => sub {
        my $key = fresh_key();
        my ($one, $two);
        ran($t, 1, 'both', sub {
            $one = $c->post($place . ($first->{query} // ''), key => $key, body => '', %{$first});
            $two = $c->post($place . ($second->{query} // ''), key => $key, body => '', %{$second});
        });
        is($one->status, 200, 'the first runs') or diag($one->body);
        return is_replay($two, $one, 'the second') if $verdict eq 'same';
        problem($two, 'key-reused', operation => 1);
        like($two->json->{detail}, qr/What differs: $names\./, "and says that it is the $names") if $names;
    };
}
sub json { return { body => $_[0], type => $_[1] // 'application/json' } }
sub form { return { body => $_[0], type => 'application/x-www-form-urlencoded' } }
sub multipart {
    my ($boundary, @parts) = @_;
    my $body = join('', map { "--$boundary\r\nContent-Disposition: form-data; name=\"f\"; filename=\"x\"\r\n\r\n$_\r\n" } @parts) . "--$boundary--\r\n";
    return { body => $body, type => "multipart/form-data; boundary=$boundary" };
}


pair('C027 raw: member order is content', '/raw', 'other', json('{"a":1,"b":2}'), json('{"b":2,"a":1}'), 'payload');
pair('C027 json: member order is not', '/json', 'same', json('{"a":1,"b":2}'), json(" { \"b\" : 2 ,\n\"a\" : 1 }"));
pair('C032 json: null is not absent', '/json', 'other', json('{"a":null}'), json('{}'), 'payload');
pair('C032 json: array order', '/json', 'other', json('[1,2]'), json('[2,1]'), 'payload');
pair('C033 json: 10 is not "10"', '/json', 'other', json('{"amt":10}'), json('{"amt":"10"}'), 'payload');
pair('C033 json: a number is its lexeme', '/json', 'other', json('{"amt":10}'), json('{"amt":10.0}'), 'payload');
pair('C033 jcs: a number is its value', '/jcs', 'same', json('{"amt":10}'), json('{"amt":1e1}'));
pair('json: a string is its characters', '/json', 'same', json('{"a":"\u00e9\/"}'), json("{\"a\":\"\xc3\xa9/\"}"));
pair('json: +json is JSON', '/json', 'same', json('{"a":1}', 'application/vnd.x+json'), json('{ "a":1}', 'application/vnd.x+json'));
pair('json: another media type is taken as octets', '/json', 'other', json('{"a":1}', 'text/plain'), json('{ "a":1}', 'text/plain'), 'payload');
pair('form: encoding does not count', '/form', 'same', form('a=b+c&d=%7e'), form('a=b%20c&d=~'));
pair('form: order does', '/form', 'other', form('a=1&b=2'), form('b=2&a=1'), 'payload');
pair('C030 raw: another boundary is another request', '/raw', 'other', multipart('XX', 'one', 'two'), multipart('YY', 'one', 'two'), 'payload');
pair('C030 multipart: another boundary is the same request', '/multipart', 'same', multipart('XX', 'one', 'two'), multipart('YY', 'one', 'two'));
pair('multipart: another file is not', '/multipart', 'other', multipart('XX', 'one', 'two'), multipart('XX', 'one', 'twO'), 'payload');
pair('C028 the query', '/raw', 'other', { query => '?dry=1' }, {}, 'query');
pair('the query, left out', '/noquery', 'same', { query => '?dry=1' }, { query => '?x' });
pair('named parameters', '/named', 'same', { query => '?a=1&x=1&b=2' }, { query => '?y&%61=1&b=2' });
pair('named parameters, another order', '/named', 'other', { query => '?a=1&a=2' }, { query => '?a=2&a=1' }, 'query');
pair('the media type', '/raw', 'other', { type => 'text/plain' }, { type => 'text/html' }, 'media type');
pair('a method override', '/raw', 'other', {}, { headers => [ 'X-HTTP-Method-Override' => 'DELETE' ] }, 'headers');
pair('C112 another call with the old key', '/raw', 'other', { body => 'mail 1' }, { body => 'mail 2' }, 'payload');

sub refused {
    my ($name, $place, $says, %request) = @_;
    subtest $name => sub {
        my $rows = $t->record_count;
        my $res;
        ran($t, 0, 'it', sub { $res = $c->post($place, key => fresh_key(), %request) });
        problem($res, 'payload-rejected');
        like($res->json->{detail}, $says, 'and says why');
        unlike($res->body, qr/SECRET/, 'without a value');
        is($t->record_count, $rows, 'no record');
    };
}
refused('json: a member twice', '/json', qr/same name/, %{ json('{"a":"SECRET","a":2}') });
refused('json: not UTF-8', '/json', qr/UTF-8/, %{ json("{\"a\":\"SECRET\xff\"}") });
refused('json: trailing text', '/json', qr/./, %{ json('{"a":1} SECRET') });
refused('json: no body', '/json', qr/empty|no JSON|without/i, %{ json('') });
refused('json: too deep', '/json', qr/nested/, %{ json('[' x 65 . ']' x 65) });
refused('json: a content coding', '/json', qr/Content-Encoding/, %{ json('{}') }, headers => [ 'Content-Encoding' => 'gzip' ]);
refused('contract: a member outside', '/contract', qr/contract/i, %{ json('{"amount":1,"x":1}') });
refused('contract: a member missing', '/contract', qr/amount/, %{ json('{}') });
refused('contract: below the minimum', '/contract', qr/amount/, %{ json('{"amount":0}') });
refused('contract: another media type', '/contract', qr/application\/json/, body => 'amount=1', type => 'text/plain');
pair('contract: an integer is its value', '/contract', 'same', json('{"amount":10}'), json('{"amount":1.0e1}'));

# A reload must not turn an honest retry into a conflict.
subtest 'a reload that changes the recipe' => sub {
    my %key = map { $_ => fresh_key() } 'json', 'noted', 'plain', 'fresh';
    my $json = $c->post('/json', key => $key{json}, %{ json('{"a":1,"b":2}') });
    my $noted = $c->post('/contract', key => $key{noted}, %{ json('{"amount":1,"note":"x"}') });
    my $plain = $c->post('/contract', key => $key{plain}, %{ json('{"amount":1}') });
    is($_->status, 200, 'runs') for $json, $noted, $plain;

    $mode{json} = [ 'IdempotencyFingerprint raw', 'IdempotencyFingerprintHeaders X-New' ];
    $t->httpd->graceful(config => $t->expand(config('IdempotencyPayloadContract @ROOT@/contract-2.json @ROOT@/contract-1.json')->($t)));
    ran($t, 0, 'the retries', sub {
        is_replay($c->post('/json', key => $key{json}, %{ json('{"b":2, "a":1}') }), $json, 'the record knows its mode');
        problem($c->post('/json', key => $key{json}, %{ json('{"b":3, "a":1}') }), 'key-reused', operation => 1);
        is_replay($c->post('/contract', key => $key{noted}, %{ json('{"note":"x","amount":1}') }), $noted, 'its contract, which the new one contradicts');
        is_replay($c->post('/contract', key => $key{plain}, %{ json('{"amount":1.0}') }), $plain, 'its contract, which the new one agrees with');
        problem($c->post('/contract', key => $key{noted}, %{ json('{"note":"y","amount":1}') }), 'key-reused', operation => 1);
        problem($c->post('/contract', key => $key{fresh}, %{ json('{"note":"x","amount":1}') }), 'payload-rejected');
    });
    $t->httpd->graceful(config => $t->expand(config('IdempotencyPayloadContract @ROOT@/contract-2.json')->($t)));
    ran($t, 0, 'a contract that is gone', sub {
        my $retry = $c->post('/contract', key => $key{plain}, %{ json('{"amount":1}') });
        problem($retry, 'outcome-unknown', operation => 1);
        like($retry->json->{detail}, qr/cannot be compared/, 'with the reason');
        problem($c->post('/contract', key => $key{plain}, %{ json('{"amount":2}') }), 'outcome-unknown', operation => 1);
        problem($c->post('/contract', key => $key{noted}, %{ json('{"amount":1}') }), 'outcome-unknown', operation => 1);
    });
};

# What start-up refuses.
for my $case ([ 'a keyword that is not of the subset', '{"typo": 1}', qr/typo/ ], [ 'a broken file', '{', qr/\S/ ], [ 'no file', undef, qr/No such file/ ]) {
    my ($name, $text, $says) = @$case;
    my $file = $t->root . '/broken.json';
    spew($file, $text, 0644) if defined $text;
    unlink $file if !defined $text;
    my ($status, $said) = $t->httpd->configtest($t->expand(protected('/x', 'x', "IdempotencyPayloadContract $file")));
    ok($status, "$name stops start-up");
    like($said, qr/IdempotencyPayloadContract/, 'and names the directive');
    like($said, $says, 'and the place');
}
$t->finish;
