# A body from which another module has read before ours: whoever read how much of it in whatever way, the fingerprint is
# over all of it and the application gets all of it; where it cannot be had again nothing runs.
use strict;
use warnings;
use Idem::Test;

my $taster = build_module('taster');
my $t = Idem::Test->new(backends => [qw(cgi proxy fpm)], config => sub {
    my ($t) = @_;
    return join '', "LoadModule taster_module $taster\n",
        protected('/cgi', 'cgi', 'IdempotencyBodyMemory 1K'), protected({ by => 'proxy' }, '/proxy', 'proxy'), protected({ by => 'fpm' }, '/php', 'php'),
        protected('/json', 'json', 'IdempotencyFingerprint json'), protected('/small', 'small', 'IdempotencyMaxBody 1000'),
        protected('/optional', 'optional', 'IdempotencyKey Optional'), protected('/off', 'off', 'IdempotencyMode Off'),
        "ScriptAlias \"/folder/\" \"$t->{root}/app/cgi/\"\n<Directory \"$t->{root}/app/cgi\">\n    IdempotencyRoute folder\n    IdempotencyTenant const:t\n    IdempotencyPrincipal user\n    \@AUTH\@\n</Directory>\n";
});
my $c = $t->client;

sub tasted { my ($how, @arg) = @_; return (headers => [ 'X-Taste' => $how ], type => 'application/octet-stream', @arg) }
sub framed { my ($form, $body) = @_; return $form eq 'length' ? (body => $body) : (chunks => [ unpack '(a7919)*', $body ]) }

my $long = join '', map { sha256($_) . "\n" } 1 .. 2000;
my %how = ('a first part' => 'access brigade 10', 'a long first part' => 'access brigade 100000', 'all of it' => 'access brigade 9999999',
    'a part in the old way' => 'access block 70', 'all in the old way' => 'access block 9999999', 'two lines' => 'access line 2',
    'a look that takes nothing' => 'access look 10');
for my $place ('/cgi', '/proxy', '/php/x', '/folder/app.cgi') {
    subtest $place => sub {
        for my $name (sort keys %how) {
            for my $form ('length', 'chunked') {
                # httpd's old way reads a chunked body only where it is asked again and again: what matters is the same
                my $body = $place eq '/cgi' || $name =~ /long/ ? $long : "one\ntwo\nthree\nfour and what follows it\n";
                my @request = ($place, key => fresh_key(), tasted($how{$name}));
                my ($one, $two);
                ran($t, 1, "$name, $form", sub { ($one, $two) = ($c->post(@request, framed($form, $body)), $c->post(@request[ 0 .. 2 ], type => 'application/octet-stream', body => $body)) });
                is($one->status, 200, "$name, $form: runs");
                is($one->json->{sha256}, sha256($body), "$name, $form: all of it comes through");
                is_replay($two, $one, "$name, $form");
            }
        }
        problem($c->post($place, key => fresh_key(), tasted('access brigade 5', body => 'x' x (8 * 1024 * 1024 + 1))), 'payload-too-large');
    };
}

subtest 'the payload is judged by all of it' => sub {
    my $key = fresh_key();
    my $spaced = '{ "b" : 2,' . ' ' x 20_000 . '"a" : 1 }';
    my ($one, $two);
    ran($t, 1, 'JSON', sub {
        $one = $c->post('/json', key => $key, tasted('access brigade 9', type => 'application/json', body => $spaced));
        $two = $c->post('/json', key => $key, tasted('access block 9', type => 'application/json', body => '{"a":1,"b":2}'));
    });
    is($one->json->{sha256}, sha256($spaced), 'the octets that were sent');
    is_replay($two, $one, 'JSON');
    ran($t, 0, 'no JSON', sub {
        for my $taste ('access brigade 9', 'access brigade 99999') {
            problem($c->post('/json', key => fresh_key(), tasted($taste, type => 'application/json', body => '{"a":1' . ' ' x 9000 . ',"a":2}')), 'payload-rejected');
            problem($c->post('/json', key => fresh_key(), tasted($taste, type => 'application/json', body => '{"a":' . ' ' x 9000)), 'payload-rejected');
        }
    });
};

subtest 'more than the route takes' => sub {
    my $rows = $t->record_count;
    ran($t, 0, 'too large', sub {
        problem($c->post('/small', key => fresh_key(), tasted('access brigade 99999', framed(chunked => 'x' x 1001))), 'payload-too-large');
        problem($c->post('/small', key => fresh_key(), tasted('access brigade 900', framed(chunked => 'x' x 1001))), 'payload-too-large');
    });
    is($t->record_count, $rows, 'no record');
    is($c->post('/small', key => fresh_key(), tasted('access brigade 900', framed(chunked => 'x' x 1000)))->json->{length}, 1000, 'at the limit');
};

subtest 'read where nobody could see it' => sub {
    my $rows = $t->record_count;
    ran($t, 0, 'lost', sub {
        for my $form ('length', 'chunked') {
            for my $taste ('post_read brigade 10', 'post_read block 10', 'post_read brigade 99999', 'access below 10', 'access below 99999') {
                next if $taste =~ /block/ && $form eq 'chunked';
                problem($c->post('/cgi', key => fresh_key(), tasted($taste, framed($form, 'an amount, and for whom'))), 'body-consumed');
            }
        }
    });
    is($t->record_count, $rows, 'no record');
    $t->httpd->expect_log(qr/IDEM0302: another module has read the request body/);
};

# Whoever has no key has what httpd itself gives him: what was read is gone, and nobody keeps it.
subtest 'without a key' => sub {
    for my $place ('/optional', '/off') {
        is($c->post($place, tasted('access brigade 4', body => 'one two'))->json->{length}, 3, "$place: the rest");
    }
};

$t->finish;
