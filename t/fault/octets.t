# Whatever octets a scope or a response has, they are data: no quote ends a statement, no character is changed, and
# what PostgreSQL cannot keep is refused before it is asked. C084, C086.
use strict;
use warnings;
use Digest::SHA ();
use Encode ();
use Idem::Test;
use MIME::Base64 ();

my $config = protected('/charges', 'charges.create') . protected('/auto', 'auto', 'IdempotencyKey Required');
my $t = Idem::Test->new(config => $config);
my $body = '{"amount":10}';

sub hex_of { return join ' ', map { sprintf '%02x', ord } split //, $_[0] }

# Users of these names; the password is the name.
sub users {
    my @names = @_;
    open(my $fh, '>>:raw', $t->root . '/users') or die "users: $!\n";
    print $fh map { "$_:{SHA}" . MIME::Base64::encode_base64(Digest::SHA::sha1($_), '') . "\n" } @names;
    close $fh;
}

my @names = (split(/\n/, <<'NAMES'), map { Encode::encode('utf8', $_) } "\x{e9}", "e\x{301}", "\x{df}", "\x{7ff}", "\x{800}", "\x{4e2d}\x{6587}",
o'brien
''
"quoted"
back\slash
\\'
x'); DROP TABLE idempotency_records; --
$1
$$
%s%n%d
E'\047'
{a,b}
NULL
a/*b
NAMES
    "\x{202e}x", "\x{feff}", "\x{e000}", "\x{fffd}", "\x{ffff}", "\x{10000}", "\x{1f600}", "\x{2f800}", "\x{e0001}", "\x{f0000}", "\x{10fffd}");
users(@names);

subtest 'principals' => sub {
    my $key = fresh_key();
    my %operation;
    ran($t, scalar @names, 'one effect each', sub {
        for my $name (@names) {
            my $c = $t->client->with(user => $name);
            my $first = $c->post('/charges', key => $key, body => $body);
            is($first->status, 200, 'runs: ' . hex_of($name)) or next;
            my $again = $c->post('/charges', key => $key, body => $body);
            ok($again->replayed && $again->body eq $first->body, 'is replayed');
            ok(!$operation{ $first->operation }++, 'has an operation of its own');
            (my $escaped = $name) =~ s/(.)/sprintf '%02x', ord $1/gse;
            is($t->record_count("principal_id = convert_from('\\x$escaped', 'UTF8')"), 1, 'is kept as it is');
        }
    });
};

subtest 'keys' => sub {
    my @keys = (split(/\n/, <<'KEYS'), join '', map { chr } 0x21 .. 0x7e);
k'
k"
k\\
'; DELETE FROM idempotency_records; --
$1
%00
k%27
\x27
KEYS
    ran($t, scalar @keys, 'one effect each', sub {
        for my $key (@keys) {
            my $first = $t->client->post('/charges', key => $key, body => $body);
            is($first->status, 200, "runs: $key") or diag($first->body);
            is_replay($t->client->post('/charges', key => $key, body => $body), $first, $key);
        }
    });
    cmp_ok($t->record_count, '>=', @keys + @names, 'nothing was deleted');
};

subtest 'paths as routes' => sub {
    my @paths = ("/auto/o'brien", '/auto/%27%3B--', '/auto/%22%5C', '/auto/%C3%A9', '/auto/%F0%9F%98%80', '/auto/$1', '/auto/x?q=%00&r=%27', '/auto/%25');
    my $key = fresh_key();
    ran($t, scalar @paths, 'one effect each', sub {
        for my $path (@paths) {
            my $first = $t->client->post($path, key => $key, body => $body);
            is($first->status, 200, "runs: $path") or diag($first->body);
            is_replay($t->client->post($path, key => $key, body => $body), $first, $path);
        }
    });
};

subtest 'what cannot be kept is refused before the store' => sub {
    my $records = $t->record_count;
    my @broken = ("\xff\xfe", "\xc3", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xc0\x80", "a\x01b", "a\x1eb", "a\x7f");
    users(@broken);
    ran($t, 0, 'refused', sub {
        for my $name (@broken) {
            my $res = $t->client->with(user => $name)->post('/charges', key => fresh_key(), body => $body);
            problem($res, 'identity-missing');
        }
        for my $path ('/auto/a%00b', '/charges/%00') {
            my $res = $t->client->post($path, key => fresh_key(), body => $body);
            cmp_ok($res->status, '>=', 400, "$path: " . $res->status);
            cmp_ok($res->status, '<', 500, 'by the client\'s fault');
        }
        is($t->client->post('/charges', headers => [ 'Idempotency-Key' => "k\xe9" ], body => $body)->status, 400, 'a key beyond ASCII');
    });
    is($t->record_count, $records, 'no record');
};

subtest 'C084 responses of any octets' => sub {
    $t->backend->behave(octets => 'all', type => 'application/octet-stream', header => [ "Content-Disposition: attachment; filename=\"caf\xe9\"", 'ETag: "\\\'--"' ]);
    my $key = fresh_key();
    my ($first, $again);
    ran($t, 1, 'all octets', sub {
        ($first, $again) = map { $t->client->post('/charges?a=%00&b=%27', key => $key, body => "\0\xff'") } 1 .. 2;
    });
    is($first->status, 200, 'runs');
    is(length $first->body, 256, 'every octet');
    is_replay($again, $first, 'again');
    is($again->header($_), $first->header($_), $_) for qw(Content-Disposition ETag);
    like($first->header('Content-Disposition'), qr/caf\xe9/, 'as the backend sent it');
    $t->backend->behave;
};

subtest 'C086 no process has any state of its own' => sub {
    my $second = Idem::Test->new(mpm => 'prefork', pg => $t->pg, config => sub { $config =~ s/\@CGI\@/$t->backend->cgi/gre });
    my ($c1, $c2) = map { $_->client->with(authority => 'shop.example') } $t, $second;
    my $key = fresh_key();
    ran($t, 1, 'two servers', sub {
        my $first = $c1->post('/charges', key => $key, body => $body);
        is_replay($c2->post('/charges', key => $key, body => $body), $first, 'by the other');
        $_->httpd->stop for $t, $second;
        $_->httpd->start for $t, $second;
        is_replay($_->post('/charges', key => $key, body => $body), $first, 'after a restart') for $c1, $c2;
    });
    $second->finish(more => 1);
};

unlike($t->pg->log, qr/invalid byte|22021|22P05|null character|syntax error/, 'the database had nothing to complain of');
$t->httpd->allow_log(qr/identity-missing|IDEM\d+: IdempotencyPrincipal|principal|AH00026|AH00036|AH01617|AH01618/i);
$t->finish;
