# Every field line of t/vectors/key-forms over the wire, by both syntaxes.
use strict;
use warnings;
use Idem::Test;
use JSON::PP ();

my $forms = JSON::PP->new->utf8->decode(slurp(source_dir() . '/t/vectors/key-forms/key-forms.json'));
# The table is about the parser's verdict; the length rule of strict (16) is tried in key.t.
# Every row begins with an empty registry, which a cache of answers does not know of.
my $t = Idem::Test->new(config => "IdempotencyReplayCache None\n" . protected('/lenient', 'lenient') . protected('/strict', 'strict', 'IdempotencyKeySyntax strict', 'IdempotencyKeyLength 1 255'));
my $c = $t->client;

# The table has octets over 7F as characters of their own; one character is one octet here.
sub octets { my ($text) = @_; utf8::downgrade($text); return $text }

sub ask {
    my ($syntax, @lines) = @_;
    return $c->post("/$syntax", body => '{}', headers => [ map { ('Idempotency-Key' => octets($_)) } @lines ]);
}

my $n = 0;
for my $form (grep { !$_->{pair} } @$forms) {
    my $name = ++$n . " $form->{class}" . ($form->{note} ? ": $form->{note}" : '') . ' ' . substr(join(' | ', map { s/[^ -~]/?/gr } @{ $form->{lines} }), 0, 60);
    for my $syntax (qw(lenient strict)) {
        subtest "$syntax $name" => sub {
            $t->pg->do('DELETE FROM idempotency_records');
            my $res;
            my $ran = executed($t, sub { $res = ask($syntax, @{ $form->{lines} }) });
            if ($form->{$syntax} eq 'accept') {
                is($res->status, 200, 'accepted') or diag($res->body);
                is($ran, 1, 'ran');
                my ($record) = $t->pg->query("SELECT encode(convert_to(idem_key, 'UTF8'), 'hex') AS hex FROM idempotency_records");
                is($record->{hex}, unpack('H*', octets($form->{key})), 'the key');
            }
            elsif ($form->{$syntax} eq 'policy') {
                problem($res, 'key-missing');
                is($ran, 0, 'did not run');
            }
            else {
                is($ran, 0, 'did not run');
                is($t->record_count, 0, 'no record');
                # httpd refuses DEL in a field by itself, before any module sees the request.
                if (grep { /\x7f/ } @{ $form->{lines} }) {
                    is($res->status, 400, 'refused by httpd');
                }
                else {
                    problem($res, 'key-malformed');
                }
            }
        };
    }
}

for my $form (grep { $_->{pair} } @$forms) {
    my ($one, $two) = @{ $form->{pair} };
    for my $syntax (qw(lenient strict)) {
        subtest "$syntax $form->{class}: @$one and @$two: $form->{$syntax}" => sub {
            $t->pg->do('DELETE FROM idempotency_records');
            my $first = ask($syntax, @$one);
            is($first->status, 200, 'the first');
            my $second = ask($syntax, @$two);
            if ($form->{$syntax} eq 'same record') {
                is_replay($second, $first, 'the second');
            }
            elsif ($form->{$syntax} eq 'second is 400') {
                problem($second, 'key-malformed');
            }
            elsif ($form->{$syntax} eq 'two records') {
                is($second->status, 200, 'the second');
                is($t->record_count, 2, 'two records');
            }
            else {
                fail("the table says something new: $form->{$syntax}");
            }
        };
    }
}

$t->finish;
